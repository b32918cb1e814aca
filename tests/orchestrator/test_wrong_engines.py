"""A thousand trials whose engine was not the one asked for, of every kind in the catalogue, among a thousand good ones.

None of them enters a comparison, however fast it was.
"""

import datetime as dt
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import pytest

from orchestrator.audit import audit
from orchestrator.plan import Gate
from orchestrator.running.gate import Passage
from orchestrator.running.trial import Outcome, Verdict, judge, settle
from orchestrator.schedule import ScheduledTrial
from orchestrator.statistics.observations import measured_rows
from tests.orchestrator.flat import FlatRun, changed
from workers.catalogue.binding import Usage, Window
from workers.catalogue.evidence import judge_request
from workers.catalogue.matches import Seen, find
from workers.catalogue.signs import ANY, Preset, Sign, load, names
from workers.protocol import Evidence

from .plans import prompt
from .records import ENGAGED, PLAIN, generation

WRONG, GOOD = 1000, 1000
# What a program prints with a line that does not tell the request's size; those whose lines need counters.
ALSO = {"llama_cpp acceptance_line": ("       eval time =    1403.42 ms /   165 tokens (x)",)}
COUNTED = ("sglang", "vllm")
NO_SERVERS = "llama_cpp cli_drafted"  # a line of the command-line program
SPEEDUP = 10.0  # of a wrong trial: it would be seen in any average


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case: one trial's evidence, and the name of its outcome."""

    kind: str
    evidence: Evidence


def shown(preset: Preset, sign: Sign, *, others: int = 0) -> tuple[list[str], Seen]:
    """The lines of a request that left this sign, and what was seen of it.

    Args:
        others: tokens that another client got meanwhile.
    """
    lines = [*ALSO.get(f"{preset.name} {sign.id}", ()), str(sign.example)]
    counts = next(match.counts for match in find(preset, Seen(lines=lines)) if match.sign.id == sign.id)
    written = counts.get("cycles", 0) + counts.get("accepted", 0) if sign.committed else counts.get("accepted", 64)
    usage = Usage(prompt=counts.get("prompt", 40), generated=counts.get("generated", written) + others)
    path = preset.traffic.get("generated", "")
    before, after = {path: 10}, {path: 10 + (usage.generated or 0) + others}
    prometheus = preset.name in COUNTED
    return lines, Seen(
        lines=lines,
        before={preset.traffic["address"]: before} if prometheus else {},
        after={preset.traffic["address"]: after} if prometheus else {},
        window=Window(usage=usage),
    )


def mechanism_of(sign: Sign) -> str:
    return "draft_model" if sign.mechanism == ANY else sign.mechanism


def from_the_logs(preset: Preset) -> Iterator[Case]:
    """Every line of the catalogue that does not prove engagement, alone, and beside one that would; and those that
    would, in another request's window.
    """
    proof = [sign for sign in preset.signs if sign.where == "log" and sign.meaning == "engaged"]
    for sign in preset.signs:
        if sign.where != "log" or sign.meaning in ("engaged", "useful"):
            continue
        mechanism = mechanism_of(sign)
        seen = [Seen(lines=[str(sign.example)])]
        if sign.meaning != "not_evidence":
            beside = [shown(preset, each) for each in proof if mechanism_of(each) == mechanism]
            seen += [replace(found, lines=[*lines, str(sign.example)]) for lines, found in beside]
        for each in seen:
            kind = f"{preset.name} {sign.id}"
            yield Case(kind=kind, evidence=judge_request(preset, each, mechanism=mechanism))
    for sign in proof:
        _, theirs = shown(preset, sign, others=7)
        kind = f"{preset.name} {sign.id} of another client"
        yield Case(kind=kind, evidence=judge_request(preset, theirs, mechanism=mechanism_of(sign)))


def from_silence(preset: Preset) -> Iterator[Case]:
    for mechanism in ("dflash", "mtp", "draft_model"):
        for lines in ([], ["POST /v1/chat/completions 200 OK"], None):
            seen = Seen(lines=lines)
            yield Case(kind=f"{preset.name} silent", evidence=judge_request(preset, seen, mechanism=mechanism))


def from_counters(preset: Preset) -> Iterator[Case]:
    """Counters that are there and did not move, or moved in a way that cannot be."""
    for sign in preset.signs:
        if sign.meaning != "engaged" or sign.positive not in sign.counts:
            continue
        for values in ({sign.positive: 0}, {"drafted": 3, "accepted": 9} if "drafted" in sign.counts else None):
            if values is None:
                continue
            body = nested({sign.counts[name]: value for name, value in values.items() if name in sign.counts})
            seen = Seen(
                response=body if sign.where == "response" else {},
                before={} if sign.address is None else {sign.address: nested(dict.fromkeys(sign.counts.values(), 0))},
                after={} if sign.address is None else {sign.address: body},
                model="m",
            )
            evidence = judge_request(preset, seen, mechanism=mechanism_of(sign))
            yield Case(kind=f"{preset.name} {sign.id} counters", evidence=evidence)


def nested(paths: dict[str, Any]) -> dict[str, Any]:
    """A body in which these paths lead to these values."""
    body: dict[str, Any] = {}
    for path, value in paths.items():
        if ":" in path:
            body[path] = value
            continue
        here = body
        *steps, last = path.split(".")
        for step in steps:
            name, _, selector = step.partition("[")
            if selector:
                (here,) = here.setdefault(name, [{"id": "m"}])
            else:
                here = here.setdefault(name, {})
        here[last] = value
    return body


def from_elsewhere() -> Iterator[Case]:
    """A sign of another mechanism, of an unasked one, of an earlier request; and in-process engines' own."""
    omlx, dflash = load("omlx"), load("dflash_mlx")
    done = next(str(sign.example) for sign in omlx.signs if sign.id == "dflash_complete")
    yield Case(kind="other mechanism", evidence=judge_request(omlx, Seen(lines=[done]), mechanism="mtp"))
    yield Case(kind="unasked", evidence=judge_request(omlx, Seen(lines=[done]), mechanism=None))
    stale = {"/metrics": {"last_request": {"request_id": 1, "mode_used": "dflash", "cycles": 9}}}
    yield Case(kind="stale", evidence=judge_request(dflash, Seen(before=stale, after=stale), mechanism="dflash"))
    for mode in ("ar_fastpath", "dflash_fallback", "off"):
        after = {"/metrics": {"last_request": {"request_id": 2, "mode_used": mode, "cycles": 3}}}
        evidence = judge_request(dflash, Seen(before=stale, after=after), mechanism="dflash")
        yield Case(kind=f"mode {mode}", evidence=evidence)
    yield Case(kind="never drafted", evidence=replace(ENGAGED, engaged=False, drafted=0, accepted=0))
    yield Case(kind="no sign", evidence=replace(ENGAGED, engaged=None, drafted=None, accepted=None))
    yield Case(kind="accepted above drafted", evidence=replace(ENGAGED, drafted=2, accepted=3))
    yield Case(kind="engaged without drafting", evidence=replace(ENGAGED, drafted=0, accepted=0))
    yield Case(kind="unrequested draft", evidence=replace(ENGAGED, requested=False))


def wrong_cases() -> list[Case]:
    presets = [load(name) for name in names()]
    cases = [case for preset in presets for case in (*from_the_logs(preset), *from_silence(preset))]
    cases += [case for preset in presets for case in from_counters(preset)]
    return [*cases, *from_elsewhere()]


def good_cases() -> list[Case]:
    cases = [Case(kind="in process", evidence=ENGAGED)]
    for name in names():
        preset = load(name)
        for sign in preset.signs:
            if sign.where == "log" and sign.meaning == "engaged":
                if f"{name} {sign.id}" == NO_SERVERS:
                    continue
                _, seen = shown(preset, sign)
                evidence = judge_request(preset, seen, mechanism=mechanism_of(sign))
                cases.append(Case(kind=f"{name} {sign.id}", evidence=evidence))
    return cases


def settled(case: Case) -> Verdict:
    trial = ScheduledTrial(
        sequence=0, kind="measured", round=0, position=0, label="a", arm="a", is_aa=False, prompt_ids=("p",), seed=0
    )
    outcome = Outcome(
        trial=trial,
        started_at=dt.datetime.now(dt.UTC),
        wall_s=1.0,
        monotonic_s=1.0,
        passage=Passage(),
        generations=[(prompt(), generation()), (prompt(), generation(evidence=[case.evidence]))],
        fault=None,
        before=(),
        during=(),
        after=(),
        log_path=None,
    )
    return settle(outcome, evidence_policy="require", gate=Gate())


def test_every_kind_of_the_catalogue_is_among_the_wrong_ones() -> None:
    kinds = {case.kind for case in wrong_cases()}
    for name in names():
        assert any(kind.startswith(name) for kind in kinds), name
        for sign in load(name).signs:
            if sign.where == "log" and sign.meaning in ("fell_back", "disabled_mid_request", "not_evidence"):
                assert f"{name} {sign.id}" in kinds
    assert len(kinds) > 40


@pytest.mark.parametrize("case", wrong_cases(), ids=lambda case: case.kind)
def test_each_wrong_kind_is_invalid_with_its_reason(case: Case) -> None:
    verdict = settled(case)
    assert verdict.status == "invalid"
    assert verdict.fault is not None
    assert verdict.fault.kind in ("not_engaged", "engagement_unknown", "evidence_broken", "unrequested_mechanism")
    assert verdict.fault.message
    assert "\n" not in verdict.fault.message


@pytest.mark.parametrize("case", good_cases(), ids=lambda case: case.kind)
def test_each_good_kind_counts(case: Case) -> None:
    assert settled(case).status == "done"


def test_a_thousand_wrong_trials_among_a_thousand_good_ones() -> None:
    luck = random.Random(20)
    wrong, good = wrong_cases(), good_cases()
    arms = [f"draft{number}" for number in range(10)]
    run = FlatRun(
        effects={"plain": 1.0} | dict.fromkeys(arms, 1.2), drafting=arms, rounds=200, aa=False, prompts={"c1": "code"}
    )
    clean = run.frame()
    places = clean.index[(clean["kind"] == "measured") & clean["arm"].isin(arms)].tolist()
    luck.shuffle(places)
    assert len(places) == WRONG + GOOD
    chosen = [(place, luck.choice(wrong if number < WRONG else good)) for number, place in enumerate(places)]
    frame = clean
    statuses, engaged, requested = (clean[name].astype(object).copy() for name in ("status", "engaged", "requested"))
    for place, case in chosen:
        judgement = judge([case.evidence])
        statuses[place], engaged[place], requested[place] = (
            settled(case).status,
            judgement.engaged,
            judgement.requested,
        )
    spoiled = pd.Series(clean.index.isin(places[:WRONG]), index=clean.index)
    speed = clean["end_to_end_tps"].astype(object).where(~spoiled, clean["end_to_end_tps"].astype(object) * SPEEDUP)
    everywhere = pd.Series(data=True, index=clean.index)
    frame = changed(frame, everywhere, status=statuses, engaged=engaged, requested=requested, end_to_end_tps=speed)
    usable = measured_rows(frame, "end_to_end_tps").loc[lambda rows: rows["usable"]]
    assert not set(usable.index) & set(places[:WRONG])
    assert set(places[WRONG:]) <= set(usable.index)
    result = audit(frame, control="plain", metric="end_to_end_tps")
    for comparison in result.comparisons:
        assert comparison.verdict == "not_engaged"  # the arm says so, and is not called fast
        assert comparison.ratio is None or comparison.ratio == pytest.approx(1.2, rel=0.02)


def test_plain_decoding_beside_them_is_untouched() -> None:
    assert settled(Case(kind="plain", evidence=PLAIN)).status == "done"
