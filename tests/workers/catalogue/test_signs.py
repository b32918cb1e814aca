"""The evidence catalogue: what each server says, in the shapes that it says it, and what follows for one request."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.running.trial import judge
from workers.catalogue import signs
from workers.catalogue.binding import Usage, Window
from workers.catalogue.evidence import copies, explain, figures, judge_request
from workers.catalogue.matches import Seen, find, window_of
from workers.catalogue.signs import CatalogueError, Preset, Sign, load, names, read
from workers.catalogue.values import lookup, parse_prometheus
from workers.protocol import Evidence

PRESETS = {name: load(name) for name in names()}
LOG_SIGNS = [(name, sign) for name, preset in PRESETS.items() for sign in preset.signs if sign.where == "log"]


def judged(preset: str, mechanism: str | None, *lines: str, tokens: int = 64, **seen: Any) -> Evidence:
    """Return the evidence of a request that was answered with so many tokens."""
    window = Window(usage=Usage(generated=tokens))
    return judge_request(PRESETS[preset], Seen(lines=lines, window=window, **seen), mechanism=mechanism)


OF_64_TOKENS = Window(usage=Usage(generated=64))


def fault(evidence: Evidence) -> str | None:
    return judge([evidence]).fault


# ---- the files ----


def test_the_servers_of_the_design_are_there() -> None:
    wanted = {"dflash_mlx", "llama_cpp", "lm_studio", "mlx_lm_server", "mlx_vlm", "mlx_serve", "ollama", "omlx", "none"}
    assert wanted | {"rapid_mlx", "sglang", "vllm"} <= set(names())


@pytest.mark.parametrize(("name", "sign"), LOG_SIGNS, ids=lambda value: getattr(value, "id", value))
def test_every_log_sign_fits_its_own_example(name: str, sign: Sign) -> None:
    assert sign.example is not None
    found = find(PRESETS[name], Seen(lines=["unrelated", f"INFO 2026 {sign.example}"]))
    assert sign.id in {match.sign.id for match in found}
    assert sign.denominator is None or next(match.counts for match in found if match.sign.id == sign.id)


@pytest.mark.parametrize("name", PRESETS)
def test_ids_are_unique_and_an_unrelated_line_says_nothing(name: str) -> None:
    ids = [sign.id for sign in PRESETS[name].signs]
    assert len(ids) == len(set(ids))
    assert find(PRESETS[name], Seen(lines=["INFO: 127.0.0.1 - POST /v1/chat/completions 200", ""])) == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"sing": []}, "no key 'sing'"),
        ({"sign": [{"id": "a", "where": "log", "meaning": "engaged", "patern": "x"}]}, "no key 'patern'"),
        ({"sign": [{"id": "a", "where": "log", "meaning": "engaged"}]}, "a log's sign has a pattern"),
        ({"sign": [{"id": "a", "where": "log", "meaning": "engaged", "pattern": "("}]}, "sign a"),
        ({"sign": [{"id": "a", "where": "logs", "meaning": "engaged", "pattern": "x"}]}, "where is 'logs'"),
        ({"sign": [{"id": "a", "where": "log", "meaning": "maybe", "pattern": "x"}]}, "meaning is 'maybe'"),
        ({"sign": [{"id": "a", "where": "difference", "meaning": "engaged", "counts": {"n": "x"}}]}, "an address"),
        ({"sign": [{"id": "a", "where": "response", "meaning": "engaged"}]}, "counts, or a field"),
        ({"sign": [{"where": "response"}]}, "missing"),
        (
            {"sign": [{"id": "a", "where": "log", "meaning": "engaged", "pattern": "x", "share": "y"}]},
            "count generated",
        ),
        (
            {"sign": [{"id": "a", "where": "response", "meaning": "engaged", "counts": {"n": "x"}, "share": "y"}]},
            "share needs the count generated",
        ),
        (
            {"sign": [{"id": "a", "where": "response", "meaning": "engaged", "counts": {"n": "x"}, "positive": "m"}]},
            "positive names no count",
        ),
        ({"traffic": {"generated": "x"}}, "traffic has no address"),
        ({"absence": {"dflash": "no"}}, "not_engaged or unknown"),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(body: dict[str, Any], words: str) -> None:
    with pytest.raises(CatalogueError, match=words.replace("(", r"\(")):
        read("mine", body)


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(CatalogueError, match="llama_cpp"):
        load("llamacpp")


def test_a_sign_holds_for_its_versions_only() -> None:
    sign = Sign(id="a", where="log", meaning="engaged", pattern="x", since="0.6", until="0.6.3")
    assert [sign.applies_to(version) for version in ("0.5.9", "0.6", "0.6.2", "0.6.3", "0.10.0", None)] == [
        False,
        True,
        True,
        False,
        False,
        True,
    ]


# ---- each server's shapes ----

OMLX_DONE = "DFlash generation complete: 64 tokens, 38.2 tok/s, acceptance=67.2%, cycles=21, phases[prefill=0.1s]"


@pytest.mark.parametrize(
    "line",
    [
        "DFlash start failed for Qwen3-8B: Received 23 parameters not in model. Falling back to batched engine.",
        "DFlash init failed for Qwen3-8B: no draft",
        "DFlash enabled for m but dflash-mlx is not installed. Falling back to batched engine.",
        "Successfully loaded Qwen3-8B as batched (fallback from DFlash)",
        "DFlash context fallback: 9000 >= 8192, evicting dflash models and switching to batched engine",
        "DFlash multimodal fallback: images in the request",
        "DFlash generation complete: 64 tokens, 0.0 tok/s, acceptance=0.0%, cycles=0",
        "DFlash generation complete: 64 tokens, 20.1 tok/s, acceptance=0.0%, cycles=0, fallback=AR",
    ],
)
def test_omlx_falls_back_in_many_words(line: str) -> None:
    evidence = judged("omlx", "dflash", "DFlash enabled for Qwen3-8B", line)
    assert evidence.engaged is False
    assert line[:40] in evidence.text
    assert str(fault(evidence)).startswith("not_engaged: ")


def test_omlx_engaged_by_the_requests_own_line() -> None:
    evidence = judged("omlx", "dflash", OMLX_DONE)
    assert evidence.engaged is True
    assert (evidence.drafted, evidence.accepted) == (None, None)  # its rate is accepted of generated
    assert fault(evidence) is None


def test_omlx_always_says_when_dflash_served_a_request() -> None:
    evidence = judged("omlx", "dflash", "DFlashEngine loaded: target=m, draft=d, max_ctx=4096, fallback=batched")
    assert evidence.engaged is False
    assert "always says" in evidence.text


def test_without_a_log_its_silence_says_nothing() -> None:
    evidence = judge_request(PRESETS["omlx"], Seen(), mechanism="dflash")
    assert evidence.engaged is None
    assert "engine.log_file" in evidence.text


def stats(requests: int, *, cycles: int, accepted: int = 0, fell_back: int = 0, model: str = "m") -> dict[str, Any]:
    totals = {
        "requests": requests,
        "speculative_requests": requests - fell_back,
        "fallback_requests": fell_back,
        "cycles": cycles,
        "accepted_draft_tokens": accepted,
    }
    entry = {"id": model, "dflash": {"speculation": {"last": {}, "totals": totals}}}
    return {"/admin/api/stats": {"active_models": {"models": [{"id": "other"}, entry]}}}


def test_omlx_counters_are_differences_of_this_request() -> None:
    before = stats(7, cycles=900, accepted=4000)
    engaged = judged("omlx", "dflash", before=before, after=stats(8, cycles=921, accepted=4042), model="m")
    assert (engaged.engaged, engaged.useful) == (True, None)  # some of the accepted may be copies of dflash-mlx's
    idle = judged("omlx", "dflash", before=before, after=stats(8, cycles=900, accepted=4000, fell_back=1), model="m")
    assert idle.engaged is False
    useless = judged("omlx", "dflash", before=before, after=stats(8, cycles=964, accepted=4000), model="m")
    assert (useless.engaged, useless.useful) == (True, False)


def test_counters_that_another_client_moved_prove_nothing() -> None:
    evidence = judged("omlx", "dflash", before=stats(7, cycles=0), after=stats(9, cycles=40, accepted=9), model="m")
    assert evidence.engaged is None
    assert "another client" in evidence.text


def test_an_mtp_that_accepted_nothing_engaged_and_was_of_no_use() -> None:
    line = "MTP[3] finish=length tokens=387 cycles=387 accept=0/387 (0.0%) tok/s=21.0"
    evidence = judged("omlx", "mtp", "MTP path activated for uid=3", line, tokens=387)
    assert (evidence.engaged, evidence.useful) == (True, False)
    assert fault(evidence) is None
    good = judged("omlx", "mtp", "MTP[4] finish=stop tokens=3919 cycles=2218 accept=1700/2218 (76.6%) x", tokens=3919)
    assert (good.engaged, good.useful) == (True, True)


# As flyto-mlx 0.7.0, which is oMLX's server, logged them on Linux: of a tiny model with one multi-token layer, and of a
# model whose draft it could not start (that line without its beginning, its folder shortened).
REAL_ACTIVATED = (
    "2026-12-01 13:15:09,984 - omlx.patches.mlx_lm_mtp.batch_generator - INFO - MTP path activated for uid=1 (model has"
    " mtp_forward, batch=1)"
)
REAL_MTP = (
    "2026-12-01 13:15:10,007 - omlx.patches.mlx_lm_mtp.batch_generator - INFO - MTP[1] finish=length tokens=8 cycles=6"
    " accept=0/6 (0.0%) emits[init=2,draft=0,bonus=0,verify=6]"
    " timing[backbone=13.9ms mtp=5.2ms sample=0.4ms cache=0.1ms]"
)
REAL_SHORT = (
    "2026-12-01 13:15:09,559 - omlx.patches.mlx_lm_mtp.batch_generator - INFO - MTP[0] finish=length tokens=2 cycles=0"
    " accept=0/0 (n/a) emits[init=2,draft=0,bonus=0,verify=0]"
    " timing[backbone=0.0ms mtp=0.0ms sample=0.0ms cache=0.0ms]"
)
REAL_FALLBACK = (
    "DFlash start failed for qwen3.8-27b-4bit: cannot import name 'runtime_config_from_profile' from"
    " 'dflash_mlx.runtime.context' (/site-packages/dflash_mlx/runtime/context.py). Falling back to batched engine."
)


def test_what_a_real_server_logged_is_read() -> None:
    found = judged("omlx", "mtp", REAL_ACTIVATED, REAL_MTP, tokens=8)
    assert (found.engaged, found.useful, found.drafted, found.accepted) == (True, False, 6, 0)
    short = judged("omlx", "mtp", REAL_ACTIVATED, REAL_SHORT, tokens=2)  # two tokens need no draft
    assert (short.engaged, short.drafted) == (False, 0)
    fallen = judged("omlx", "dflash", REAL_FALLBACK)
    assert fallen.engaged is False
    assert "cannot import name 'runtime_config_from_profile'" in fallen.text


def test_an_mtp_path_that_was_only_activated_is_no_evidence() -> None:
    assert judged("omlx", "mtp", "MTP path activated for uid=3").engaged is False


def test_an_inactive_mtp_reports_it_and_that_of_a_batch_may_be_of_other_requests() -> None:
    line = "mtp_enabled=True for m but model is incompatible (x); MTP path will be inactive"
    assert judged("omlx", "mtp", line).engaged is False
    batch = judged("omlx", "mtp", "MTP inactive for 2-row batch")
    assert batch.engaged is None
    assert "MTP inactive for 2-row batch" in batch.text


def test_the_banner_of_dflash_serve_is_no_evidence() -> None:
    banner = "Mode:         DFlash (speculative decoding active)"
    assert judged("dflash_mlx", "dflash", banner).engaged is False
    fast = judged("dflash_mlx", "dflash", banner, "[dflash] fast-path AR | max_tokens=64 threshold=256")
    assert fast.engaged is False
    assert "fast-path AR" in fast.text


def last_request(number: int, mode: str, cycles: int | None) -> dict[str, Any]:
    request = {"request_id": number, "mode_used": mode, "cycles": cycles, "generated_tokens": 40}
    return {"/metrics": {"last_request": request}}


@pytest.mark.parametrize(
    ("mode", "cycles", "engaged"),
    [("dflash", 12, True), ("dflash", 0, False), ("dflash_fallback", 0, False), ("ar_fastpath", None, False)],
)
def test_dflash_serve_by_the_state_of_its_last_request(mode: str, cycles: int | None, engaged: bool) -> None:
    before, after = last_request(3, "dflash", 9), last_request(4, mode, cycles)
    evidence = judged("dflash_mlx", "dflash", before=before, after=after, tokens=40)
    assert evidence.engaged is engaged


@pytest.mark.parametrize(
    ("accepted", "copied", "copy_cycles", "engaged", "useful"),
    [
        (30, 0, 0, True, True),
        (0, 0, 0, True, False),
        (0, 14, 2, True, False),
        (14, 14, 2, True, None),  # all of them may be copies: the draft shows nothing
        (28, 63, 9, True, None),
        (15, 14, 2, True, True),  # one at least is the draft's
        (28, 84, 12, False, False),  # every step was a copy
    ],
)
def test_copies_from_the_context_are_no_acceptance_of_the_draft(
    accepted: int, copied: int, copy_cycles: int, engaged: bool, useful: bool | None
) -> None:
    after = last_request(4, "dflash", 12)
    after["/metrics"]["last_request"] |= {
        "acceptance_rate": accepted / 40,
        "copyspec_tokens": copied,
        "copyspec_hits": copy_cycles,
    }
    # Its line counts the copies as accepted too.
    line = f"2026-01-01 00:00:00 [dflash] decode 98.1 tok/s | {accepted * 2.5:.1f}% accepted | 40 tokens | 5.2s"
    evidence = judged("dflash_mlx", "dflash", line, before=last_request(3, "dflash", 9), after=after, tokens=40)
    assert (evidence.engaged, evidence.useful) == (engaged, useful)
    told = copies(PRESETS["dflash_mlx"], Seen(lines=(line,), before=last_request(3, "dflash", 9), after=after))
    assert told is not None
    assert (told.requested, told.engaged, told.drafted) == (False, None if copy_cycles else False, copied)
    assert judge([evidence, told]).useful is useful
    assert copies(PRESETS["omlx"], Seen(lines=(OMLX_DONE,))) is None


def test_the_state_of_an_earlier_request_is_none_of_this_one() -> None:
    same = last_request(3, "dflash", 9)
    assert judged("dflash_mlx", "dflash", before=same, after=same).engaged is False


def test_dflash_serves_own_acceptance_is_of_generated_and_not_kept_as_a_rate() -> None:
    line = "2026-01-01 00:00:00 [dflash] 98.1 tok/s | 84.7% accepted | 512 tokens | 5.2s | prompt: 40 tokens"
    evidence = judged("dflash_mlx", "dflash", line, tokens=512)
    assert evidence.engaged is True
    assert (evidence.drafted, evidence.accepted) == (None, None)


@pytest.mark.parametrize(
    "line",
    [
        "draft acceptance rate = 0.69953 (  149 accepted /   213 generated)",
        "draft acceptance = 0.69953 (  149 accepted /   213 generated), mean acceptance length =  2.92,"
        " acceptance rate per position = (0.805, 0.5)",
    ],
)
def test_llama_cpp_old_and_new_line(line: str) -> None:
    block = [
        "prompt eval time = 12.1 ms / 15 tokens (x)",
        "       eval time = 1403.42 ms /   165 tokens (x)",
        "total",
        line,
    ]
    evidence = judged("llama_cpp", "draft_model", *block, tokens=165)
    assert (evidence.engaged, evidence.drafted, evidence.accepted) == (True, 213, 149)
    assert judged("llama_cpp", "draft_model", *block, tokens=15).engaged is None
    assert judged("llama_cpp", "draft_model", line, tokens=165).engaged is None  # it tells no tokens of its own


def test_llama_cpp_answers_with_counts_only_where_something_was_drafted() -> None:
    timings = {"timings": {"draft_n": 213, "draft_n_accepted": 149, "predicted_per_second": 40.0, "cache_n": 12}}
    evidence = judged("llama_cpp", "draft_model", response=timings)
    assert (evidence.engaged, evidence.drafted, evidence.accepted) == (True, 213, 149)
    assert dict(figures(PRESETS["llama_cpp"], Seen(response=timings))) == {"decode_tps": 40.0, "cached_tokens": 12.0}
    assert judged("llama_cpp", "draft_model", response={"timings": {"predicted_n": 3}}).engaged is None


def test_llama_cpp_of_the_command_line_is_no_servers_and_binds_to_no_request() -> None:
    assert judged("llama_cpp", "draft_model", "n_drafted = 912", "n_accept = 313").engaged is None


@pytest.mark.parametrize("key", ["stats", "usage"])
def test_lm_studio_stats_wherever_they_are(key: str) -> None:
    counts = {"draft_model": "d", "total_draft_tokens_count": 50, "accepted_draft_tokens_count": 20}
    evidence = judged("lm_studio", "draft_model", response={key: counts})
    assert (evidence.engaged, evidence.drafted, evidence.accepted) == (True, 50, 20)
    idle = judged("lm_studio", "draft_model", response={key: counts | {"total_draft_tokens_count": 0}})
    assert idle.engaged is False
    assert judged("lm_studio", "draft_model", response={"stats": {"draft_model": "d"}}).engaged is None


def served(*, generated: int, requests: int) -> dict[str, Any]:
    names = {"generation_tokens_total": generated, "request_success_total": requests, "num_requests_running": 0}
    return {"/metrics": {f"vllm:{name}": value for name, value in names.items()}}


def test_vllm_intervals_add_up_and_an_empty_one_is_not_engaged() -> None:
    line = (
        "SpecDecoding metrics: Mean acceptance length: 3.49, Accepted throughput: 0.12 tokens/s, Drafted throughput:"
        " 0.34 tokens/s, Accepted: {} tokens, Drafted: {} tokens, Per-position acceptance rate: 0.757,"
        " Avg Draft acceptance rate: 35.5%"
    )
    lines = [line.format(20, 59), line.format(8, 41)]
    assert judged("vllm", "draft_model", *lines).engaged is None
    before, after = served(generated=10, requests=1), served(generated=74, requests=2)
    evidence = judged("vllm", "draft_model", *lines, before=before, after=after)
    assert (evidence.engaged, evidence.drafted, evidence.accepted) == (True, 100, 28)
    assert judged("vllm", "draft_model", line.format(0, 0), before=before, after=after).engaged is False
    more = served(generated=75, requests=2)
    assert judged("vllm", "draft_model", *lines, before=before, after=more).engaged is None


def test_vllm_counters_are_read_from_prometheus_text() -> None:
    text = (
        "# HELP vllm:spec_decode_num_draft_tokens_total x\n"
        'vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {drafted}\n'
        'vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}\n'
        'vllm:generation_tokens_total{{engine="0",model_name="m"}} {drafted}\n'
    )
    before = {"/metrics": parse_prometheus(text.format(drafted="1.0", accepted="1.0"))}
    after = {"/metrics": parse_prometheus(text.format(drafted="61.0", accepted="2.1e+01"))}
    evidence = judged("vllm", "draft_model", before=before, after=after, tokens=60)
    assert (evidence.engaged, evidence.drafted, evidence.accepted) == (True, 60, 20)
    assert judged("vllm", "draft_model", before=after, after=after).engaged is False


def test_a_counter_that_appears_with_its_first_use_started_at_zero() -> None:
    after = {"/metrics": {"vllm:spec_decode_num_draft_tokens_total": 9.0, "vllm:generation_tokens_total": 64.0}}
    assert judged("vllm", "draft_model", before={"/metrics": {}}, after=after).drafted == 9


def test_sglang_with_and_without_an_accept_rate() -> None:
    line = "Decode batch. #running-req: {}, #token: 108, token usage: 0.00, accept len: {},{} cuda graph: True, x"
    before = {"/metrics": {"sglang:generation_tokens_total": 5.0}}
    alone = {"before": before, "after": {"/metrics": {"sglang:generation_tokens_total": 69.0}}}
    assert judged("sglang", "draft_model", line.format(1, "2.17", " accept rate: 0.54,"), **alone).useful is True
    assert judged("sglang", "draft_model", line.format(1, "2.17", ""), **alone).engaged is True
    assert judged("sglang", "draft_model", line.format(1, "1.00", ""), **alone).useful is None
    assert judged("sglang", "draft_model", line.format(2, "2.17", ""), **alone).engaged is None  # a batch of two
    assert judged("sglang", "draft_model", line.format(1, "2.17", "")).engaged is None  # whose it is, nothing tells
    assert (
        judged("sglang", "draft_model", "Decode batch. #running-req: 1, #token: 108, cuda graph: True").engaged is None
    )


def test_ollama_and_mlx_vlm_lines() -> None:
    line = 'level=INFO msg="speculative decode stats" iterations=40 drafted=160 accepted=90 acceptance=0.56 avg_draft=4'
    assert judged("ollama", "mtp", line, tokens=131).accepted == 90
    assert judged("ollama", "mtp", line, tokens=132).engaged is None
    vlm = "Speculative decode: kind=dflash batch=1 tokens=128 accept=0.61 rounds=40 drafted=160"
    assert judged("mlx_vlm", "dflash", "Drafter ready; speculative decoding enabled.", vlm, tokens=128).drafted == 160
    mute = {"timings": {"predicted_ms": 4.0, "draft_n": None}}
    assert judged("mlx_vlm", "dflash", vlm, tokens=128, response=mute).engaged is None
    assert judged("mlx_vlm", "dflash", "Drafter ready; speculative decoding enabled.").engaged is None
    lost = "Speculative drafter is incompatible with the target model; falling back to autoregressive generation: x"
    assert judged("mlx_vlm", "dflash", lost).engaged is False
    timings = {"timings": {"draft_kind": "dflash", "draft_rounds": 9, "draft_n": 36, "draft_n_accepted": 12}}
    assert judged("mlx_vlm", "dflash", response=timings).accepted == 12


def test_a_gate_that_switched_it_off_in_the_middle_is_not_engaged_and_reports_it() -> None:
    gate = "mtp=disabled (windowed per-draft rate 0.29 < 0.50 at depth 1)"
    summary = "[spec-stats] mode=mtp attempts=40 accepts=11 avg_per_round=0.28 runtime_disabled={}"
    evidence = judged("mlx_serve", "mtp", "mtp=enabled (streaming, depth=1)", summary.format("true"), tokens=51)
    assert (evidence.engaged, evidence.useful) == (False, True)
    assert "for a part of the request only" in evidence.text
    assert judged("mlx_serve", "mtp", summary.format("false"), tokens=51).engaged is True
    assert judged("mlx_serve", "mtp", summary.format("false"), gate, tokens=51).engaged is None  # whose gate?
    assert judged("mlx_serve", "draft_model", "drafter=disabled (logprobs requested)").engaged is None


@pytest.mark.parametrize("name", ["rapid_mlx", "mlx_lm_server", "none"])
def test_a_server_that_reports_nothing_leaves_engagement_unknown(name: str) -> None:
    evidence = judged(name, "draft_model", "Draft model tokenizer does not match model tokenizer.")
    assert evidence.engaged is None
    assert str(fault(evidence)).startswith("engagement_unknown: no sign of draft_model")


# ---- judging ----


@pytest.mark.parametrize("name", PRESETS)
def test_plain_decoding_is_plain_until_a_sign_says_otherwise(name: str) -> None:
    evidence = judge_request(PRESETS[name], Seen(lines=["nothing"]), mechanism=None)
    assert (evidence.mechanism, evidence.requested, evidence.engaged) == ("plain", False, False)
    assert fault(evidence) is None


def test_only_a_sign_that_holds_spoils_a_plain_arm() -> None:
    body = {
        "sign": [
            {"id": "off", "where": "log", "meaning": "fell_back", "mechanism": "kernel", "pattern": "kernel is off"},
            {"id": "useful", "where": "log", "meaning": "useful", "pattern": r"saved (?P<n>\d+)", "positive": "n"},
        ]
    }
    preset = read("mine", body)
    for line, engaged in (("kernel is off", False), ("saved 0", False), ("saved 3", True)):
        assert judge_request(preset, Seen(lines=[line], window=OF_64_TOKENS), mechanism=None).engaged is engaged


def test_an_answer_that_could_hold_the_sign_and_does_not_shows_that_it_did_not_run() -> None:
    sign = {"id": "s", "where": "response", "meaning": "engaged", "mechanism": "kernel", "counts": {"n": "n"}}
    preset = read("mine", {"absence": {"kernel": "not_engaged"}, "sign": [sign]})
    assert judge_request(preset, Seen(), mechanism="kernel").engaged is False
    in_log = read("mine", {"absence": {"kernel": "not_engaged"}, "sign": [sign | {"mechanism": "other"}]})
    unreadable = judge_request(in_log, Seen(), mechanism="kernel")
    assert (unreadable.engaged, "nothing to read" in unreadable.text) == (None, True)


def test_silence_is_explained_by_the_signs_that_the_preset_has_of_this_mechanism() -> None:
    sign = {"id": "s", "where": "log", "meaning": "fell_back", "mechanism": "kernel", "pattern": "x"}
    without = judge_request(read("mine", {"sign": [sign]}), Seen(lines=[]), mechanism="kernel")
    assert "gives none: set design.evidence=record" in without.text
    engaged = sign | {"id": "t", "meaning": "engaged"}
    assert (
        "does not always give one"
        in judge_request(read("mine", {"sign": [sign, engaged]}), Seen(lines=[]), mechanism="kernel").text
    )


def test_a_mechanism_that_ran_unasked_spoils_a_plain_arm() -> None:
    evidence = judged("omlx", None, OMLX_DONE)
    assert str(fault(evidence)).startswith("unrequested_mechanism: ")


def test_more_accepted_than_drafted_is_broken_evidence() -> None:
    evidence = judged("llama_cpp", "draft_model", response={"timings": {"draft_n": 3, "draft_n_accepted": 9}})
    assert str(fault(evidence)).startswith("evidence_broken: 9 accepted of 3 drafted")


def test_another_mechanisms_sign_is_not_this_ones() -> None:
    assert judged("omlx", "mtp", OMLX_DONE).engaged is False


def test_a_sign_of_another_version_is_not_looked_for() -> None:
    preset = PRESETS["omlx"]
    older = replace(preset, signs=tuple(replace(sign, since="0.7") for sign in preset.signs))
    assert judge_request(older, Seen(lines=[OMLX_DONE], version="0.6.1"), mechanism="dflash").engaged is False
    assert (
        judge_request(older, Seen(lines=[OMLX_DONE], version="0.7.2", window=OF_64_TOKENS), mechanism="dflash").engaged
        is True
    )


def test_own_signs_are_read_like_the_shipped_ones() -> None:
    body = {
        "title": "my server",
        "absence": {"kernel": "not_engaged"},
        "sign": [
            {
                "id": "fast",
                "where": "log",
                "meaning": "engaged",
                "mechanism": "kernel",
                "pattern": r"fast kernel for (?P<generated>\d+)",
            }
        ],
    }
    preset = read("mine", body)
    assert (
        judge_request(
            preset, Seen(lines=["using fast kernel for 64 tokens"], window=OF_64_TOKENS), mechanism="kernel"
        ).engaged
        is True
    )
    assert judge_request(preset, Seen(lines=["using slow kernel"]), mechanism="kernel").engaged is False
    assert isinstance(preset, Preset)
    assert signs.FOLDER.is_dir()


def test_only_the_first_turn_says_that_the_conversation_is_new() -> None:
    preset = read("mine", {"body_first": {"slot": "{conversation}", "n": 1}, "body_each": {"user": "{conversation}"}})
    assert preset.afresh(turn=0, conversation="c1") == {"user": "c1", "slot": "c1", "n": 1}
    assert preset.afresh(turn=1, conversation="c1") == {"user": "c1"}


STATE = {"id": "s", "where": "state", "meaning": "engaged", "address": "/stats", "counts": {"cycles": "last.cycles"}}


def test_a_state_without_a_mark_of_change_is_taken_as_it_stands() -> None:
    state = {"/stats": {"last": {"id": 1, "cycles": 7}}}
    seen = Seen(before=state, after=state)
    (match,) = find(read("mine", {"sign": [STATE]}), seen)
    assert match.counts == {"cycles": 7}
    assert find(read("mine", {"sign": [STATE | {"fresh": "last.id"}]}), seen) == []


def test_the_lines_just_before_a_sign_add_their_counts_and_farther_ones_do_not() -> None:
    sign = {"id": "a", "where": "log", "meaning": "engaged", "pattern": "done", "also": [r"drafted (?P<drafted>\d+)"]}
    preset = read("mine", {"sign": [sign]})
    near, far = (["drafted 9", *["other"] * between, "done"] for between in (3, 4))
    assert [match.counts for match in find(preset, Seen(lines=near))] == [{"drafted": 9}]
    assert [match.counts for match in find(preset, Seen(lines=far))] == [{}]


def test_a_share_of_the_tokens_is_rounded_to_a_count() -> None:
    sign = {"id": "a", "where": "response", "meaning": "engaged", "counts": {"generated": "n"}, "share": "share"}
    preset = read("mine", {"sign": [sign]})
    assert [match.counts for match in find(preset, Seen(response={"n": 64, "share": 0.4}))] == [
        {"generated": 64, "accepted": 26}
    ]
    for share in (None, "much", float("nan")):
        assert [match.counts for match in find(preset, Seen(response={"n": 64, "share": share}))] == [{"generated": 64}]


@pytest.mark.parametrize(("running", "busy"), [(3, 3), (0, 0), ({"id": "x"}, 1), (None, 0), ([], 0), ("idle", 1)])
def test_the_requests_that_a_server_runs_are_a_count_or_a_description_of_one(running: object, busy: int) -> None:
    preset = read("mine", {"traffic": {"address": "/stats", "running": "now", "requests": "served"}})
    state = {"/stats": {"now": running, "served": 1}}
    assert window_of(preset, Seen(before=state, after={"/stats": {"served": 2}})).busy == busy
    assert window_of(preset, Seen(before={}, after={"/stats": {"served": 2}})).busy is None


@pytest.mark.parametrize(("moved", "whole"), [(0, True), (-1, False), (1, False)])
def test_counters_that_did_not_move_deny_for_every_request(moved: int, whole: bool) -> None:
    sign = {
        "id": "d",
        "where": "difference",
        "meaning": "engaged",
        "address": "/stats",
        "counts": {"cycles": "cycles"},
        "positive": "cycles",
    }
    seen = Seen(before={"/stats": {"cycles": 5}}, after={"/stats": {"cycles": 5 + moved}})
    (match,) = find(read("mine", {"sign": [sign]}), seen)
    assert match.trace.whole_server is whole


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a.b", 1),
        ("a.c", None),
        ("list[id=x].n", 7),
        ("list[id={model}].n", 8),
        ("list[id=z].n", None),
        ("only[].n", 9),
        ("list[].n", None),
        ("a.b.c", None),
        ("dotted.name", 3),
    ],
)
def test_paths(path: str, value: object) -> None:
    body = {
        "a": {"b": 1},
        "list": [{"id": "x", "n": 7}, {"id": "org/m.1", "n": 8}],
        "only": [{"n": 9}],
        "dotted.name": 3,
    }
    assert lookup(body, path, model="org/m.1") == value


def test_prometheus_text_with_labels_times_and_oddities() -> None:
    text = 'a 1\na{x="1"} 2 1700000000\nb{t="le \\" } 5"} 3.5e2\nc NaN\nd +Inf\n# a comment\nbroken line here\n'
    parsed = parse_prometheus(text)
    assert (parsed["a"], parsed["b"], parsed["d"]) == (3.0, 350.0, float("inf"))
    assert "broken" not in parsed


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ('a{x="1"} 7 # {trace="2"} 0.5', 7.0),  # an exemplar is not the sample's value
        ("a 7 1700000000.5", 7.0),
        ('a{x="\u2028\x0b"} 7', 7.0),  # only a line feed ends a line
        ("a{} 7", 7.0),
        ("a +Inf", float("inf")),
        ("a e", None),
        ("a -", None),
        ("a 1_000", None),
        ("a 0x1F", None),
        ("a\u0661 7", None),
        ('a{x="1} 7', None),
        ("a7", None),
    ],
)
def test_a_line_of_metrics_gives_its_sample_or_nothing(line: str, value: float | None) -> None:
    assert parse_prometheus(f"before 1\n{line}\nafter 2\n") == {
        "before": 1.0,
        "after": 2.0,
        **({} if value is None else {"a": value}),
    }


@pytest.mark.parametrize(
    ("name", "sign"),
    [each for each in LOG_SIGNS if each[1].meaning == "fell_back"],
    ids=lambda value: getattr(value, "id", value),
)
def test_of_several_lines_that_say_why_it_does_not_run_the_newest_is_reported(name: str, sign: Sign) -> None:
    mechanism = "dflash" if sign.mechanism == signs.ANY else sign.mechanism
    lines = [f"INFO {sign.example} once", f"INFO {sign.example} twice", "INFO unrelated"]
    why = explain(PRESETS[name], lines, mechanism=mechanism)
    assert why is not None
    assert why.endswith("twice")
    assert explain(PRESETS[name], lines[2:], mechanism=mechanism) is None
    if sign.mechanism != signs.ANY:
        assert explain(PRESETS[name], lines, mechanism="another") is None
