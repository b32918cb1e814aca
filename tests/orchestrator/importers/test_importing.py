"""From a file to a stored run: zones, idempotence, plans, and every command that reads a run afterwards."""

import datetime as dt
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from db.engine import Database
from db.frames import trials
from db.session import open_database
from orchestrator.cli import cli
from orchestrator.errors import InputError, RefusedError
from orchestrator.importers.foreign_plan import make_plan, metric_of
from orchestrator.importers.formats import FORMATS, choose_format
from orchestrator.importers.source import Choices, in_utc, read_results
from orchestrator.importers.storage import store
from orchestrator.judging import host_noise, judge_run
from orchestrator.plan import Plan, dump, load
from orchestrator.planning.frozen_plan import stored_plan
from orchestrator.running.provenance import refuse_from_elsewhere
from orchestrator.stored_run import StoredRun
from orchestrator.vocabulary import IMPORT_FORMATS
from workers.machine.host import read_host

from .samples import FILES, FOLDER, read

NAMES = [file.name for file in FILES]


class Invoker:
    """The command in this process, on a database of its own."""

    def __init__(self, folder: Path) -> None:
        self.db = folder / "test.db"

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, [*arguments, "--db", str(self.db)], standalone_mode=False)


@pytest.fixture
def shell(tmp_path: Path) -> Invoker:
    return Invoker(tmp_path)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Database, dict[str, str]]]:
    """Every sample in one database, and the run of each."""
    database = open_database(str(tmp_path_factory.mktemp("imported") / "interlace.db"))
    yield database, {name: stored(database, FOLDER / name) for name in NAMES}
    database.dispose()


def stored(database: Database, file: Path, **choices: str) -> str:
    source, results = read_results(file, Choices(**choices))
    plan = make_plan(results, experiment=file.stem, source=file.name, interlace_version="0")
    return store(database, results, plan, source).run_id


def plan_of(database: Database, run_id: str) -> Plan:
    return load(stored_plan(database, run_id))


def test_the_command_line_knows_the_formats() -> None:
    assert tuple(each.NAME for each in FORMATS) == IMPORT_FORMATS


# ---- times ----


def test_times_without_a_zone_are_of_the_zone_named_and_that_is_stated() -> None:
    source, results = read_results(FOLDER / "vllm_bench.json", Choices(timezone="America/New_York"))
    assert results.started_at == dt.datetime(2026, 2, 11, 2, 59, 40, tzinfo=dt.UTC)
    assert any("no zone; taken to be of America/New_York" in note for note in results.notes)
    with pytest.raises(InputError, match="--timezone Mars/Base: no such time zone"):
        read_results(FOLDER / "vllm_bench.json", Choices(timezone="Mars/Base"))
    assert source.name == "vllm_bench.json"


def test_else_they_are_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        _, results = read_results(FOLDER / "vllm_bench.json", Choices())
    finally:
        monkeypatch.undo()
        time.tzset()
    assert results.started_at == dt.datetime(2026, 2, 10, 12, 59, 40, tzinfo=dt.UTC)
    assert any("the local zone (this machine's, --timezone names another)" in note for note in results.notes)


def test_times_with_a_zone_stay_and_nothing_is_stated() -> None:
    _, results = read_results(FOLDER / "mlx_chronos.json", Choices(timezone="Asia/Tokyo"))
    assert results.started_at == dt.datetime(2026, 2, 11, 8, 0, tzinfo=dt.UTC)
    assert not any("zone" in note for note in results.notes)


def test_results_without_any_time_are_dated_as_their_file_is(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    shutil.copyfile(FOLDER / "dflash_mlx.json", file)
    os.utime(file, (1770000000, 1770000000))
    _, results = read_results(file, Choices())
    assert results.started_at == dt.datetime.fromtimestamp(1770000000, dt.UTC)
    assert any("no time in the file; taken to be that of the file itself" in note for note in results.notes)


# ---- the plan and what is stored ----


@pytest.mark.parametrize("name", NAMES)
def test_a_run_has_a_frozen_plan_that_loads(name: str, imported: tuple[Database, dict[str, str]]) -> None:
    database, found = imported
    plan = plan_of(database, found[name])
    frame = trials(database, found[name])
    assert load(dump(plan)) == plan
    assert set(frame["arm"]) == {arm.name for arm in plan.arms}
    assert set(frame["prompt_id"]) == {prompt.id for prompt in plan.prompts}
    assert not frame["randomised"].any()
    assert set(frame["origin"]) == {plan.prompts[0].workload}
    assert list(frame["ordinal"]) == list(range(len(frame)))
    for untold in ("seed", "round", "position", "prompt_sha256", "text_sha256", "fingerprint"):
        assert frame[untold].isna().all(), untold


def test_different_shapes_are_different_workloads(imported: tuple[Database, dict[str, str]]) -> None:
    database, found = imported
    identities = {plan_of(database, found[name]).workload_sha256 for name in ("llama_bench.json", "guidellm.json")}
    assert len(identities) == 2


def test_what_an_audit_compares_is_what_most_arms_have() -> None:
    results = read("llama_bench.json")
    assert metric_of(results, None, source="f") == "decode_tps"
    assert metric_of(results, "prefill_tps", source="f") == "prefill_tps"
    with pytest.raises(InputError, match=r"--metric ttft_s: no trial in f has it; it has decode_tps, prefill_tps"):
        metric_of(results, "ttft_s", source="f")


def test_the_same_file_twice_is_reported_and_not_doubled(shell: Invoker) -> None:
    first = shell("db", "import", str(FOLDER / "llama_bench.json"))
    assert "stored as run" in first.output
    again = shell("db", "import", str(FOLDER / "llama_bench.json"), "--experiment", "other")
    assert "this file was already imported, as run" in again.output
    listed = shell("query", "SELECT count(*) AS n FROM run", "--format", "csv")
    assert listed.output.split() == ["n", "1"]


def test_two_machines_make_the_same_run_of_one_file(tmp_path: Path) -> None:
    ids = [stored(open_database(str(tmp_path / f"{side}.db")), FOLDER / "guidellm.json") for side in "ab"]
    assert ids[0] == ids[1]


def test_a_dry_run_stores_nothing(shell: Invoker) -> None:
    done = shell("db", "import", str(FOLDER / "mlx_chronos.json"), "--dry-run")
    assert "nothing stored (--dry-run)" in done.output
    assert "fields not known here, kept with the arms: mood" in done.output
    assert not shell.db.exists()


def test_choices_are_kept(shell: Invoker) -> None:
    options = ["--host", "studio", "--experiment", "flash", "--metric", "prefill_tps"]
    control = ["--control", "Qwen3-4B-Q4_K_M flash_attn=1", "--format", "llama-bench"]
    shell("db", "import", str(FOLDER / "llama_bench.json"), *options, *control)
    sql = "SELECT DISTINCT experiment, host, chip, arm FROM trial_flat WHERE is_control"
    (row,) = json.loads(shell("query", sql, "--format", "json").output)
    assert row == {
        "experiment": "flash",
        "host": "studio",
        "chip": "Apple M4 Pro",
        "arm": "Qwen3-4B-Q4_K_M flash_attn=1",
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"who": 1}', "no format that is known: it holds an object with who; known are llama-bench"),
        (b"SQLite format 3\x00...", "is a database; take its runs with `interlace db merge"),
        (b"PK\x03\x04 not a zip", "not a whole export"),
        (b'[{"n_prompt": 1, "n_gen": 0, "avg_ns": 1, "samples_ns": 7}]', "not as llama-bench -o json should be"),
        (b'{"benchmarks": [], "latency_mode": "api"}', "is it whole|holds no result"),
    ],
)
def test_mistakes_are_one_clear_line(content: bytes, words: str, shell: Invoker, tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content)
    failed = shell("db", "import", str(file))
    assert failed.exception is not None
    assert getattr(failed.exception, "exit_code", None) == 2
    with pytest.raises(type(failed.exception), match=words):
        raise failed.exception
    assert "\n" not in str(failed.exception)


# ---- afterwards ----


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_ever_supported(name: str, imported: tuple[Database, dict[str, str]]) -> None:
    database, found = imported
    judged = judge_run(StoredRun.load(database, found[name]))
    verdicts = {one.verdict for one in judged.result.comparisons}
    assert verdicts <= {"could_be_drift", "not_engaged", "confounded", "underpowered"}
    assert judged.composition is None
    assert all(one.ci_low is None and one.p_value is None for one in judged.result.comparisons)


def test_speculation_without_evidence_is_not_engaged(imported: tuple[Database, dict[str, str]]) -> None:
    database, found = imported
    run_id = found["vllm_bench_detailed.jsonl"]
    (one,) = judge_run(StoredRun.load(database, run_id)).result.comparisons
    assert one.verdict == "not_engaged"
    assert any(reason.code == "not_randomised" for reason in one.reasons)


def test_an_imported_run_says_nothing_of_the_noise_here(imported: tuple[Database, dict[str, str]]) -> None:
    database, _ = imported
    assert host_noise(str(database.url), host=replace(read_host(), hostname="unknown")) is None


@pytest.mark.slow
def test_every_command_answers(shell: Invoker) -> None:
    for name in ("dflash_mlx.json", "dflash_mlx_old.json", "llama_bench.json", "vllm_bench.json"):
        assert shell("db", "import", str(FOLDER / name)).exception is None
    audit = shell("audit", "last")
    assert audit.exception is None
    for command in (["status"], ["history"], ["history", "--metric", "decode_tps"]):
        assert shell(*command).exception is None, command
    runs = json.loads(shell("query", "SELECT id, origin FROM run", "--format", "json").output)
    ids = [row["id"] for row in runs if row["origin"] == "dflash-mlx"]
    for style in ("table", "json", "markdown"):
        assert shell("audit", ids[0], "--format", style).exception is None
    related = shell("compare", *ids)
    assert isinstance(related.exception, InputError)
    assert "cannot be related; missing: a shared control" in str(related.exception)
    resumed = shell("resume", ids[0])
    assert isinstance(resumed.exception, RefusedError)
    assert "results of dflash-mlx, imported" in str(resumed.exception)


def test_a_run_of_another_machine_is_not_gone_on_with(tmp_path: Path) -> None:
    from tests.db.filling import fill

    database = open_database(str(tmp_path / "x.db"))
    filled = fill(database)
    with pytest.raises(RefusedError, match=r"began on another machine \(studio, Apple M4\); resume it there"):
        refuse_from_elsewhere(database, filled.last_run, read_host())


# ---- whatever a file holds ----

NUMBERS = st.one_of(st.none(), st.just(0), st.integers(-5, 10**10), st.floats(), st.text(max_size=3), st.booleans())


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_a_reader_never_fails_otherwise_than_it_says(data: st.DataObject, name: str) -> None:
    """Any value anywhere: results whose numbers are measurements, or an error that reading turns into one line."""
    from .samples import body

    value = body(name)
    _poke(value, data)
    try:
        results = choose_format(value, "auto", name="f").read(value)
    except (InputError, KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError):
        return
    for trial in results.trials:
        for metric in ("ttft_s", "prefill_tps", "decode_tps", "end_to_end_tps", "total_s"):
            number = getattr(trial.generation, metric)
            assert number is None or 0 < number < float("inf"), metric


def test_a_time_no_clock_can_show_is_not_measured() -> None:
    from .samples import body

    value = body("vllm_bench.json") | {"median_tpot_ms": 1e-308, "mean_tpot_ms": 1e-308, "p99_tpot_ms": 1e-308}
    results = choose_format(value, "auto", name="f").read(value)
    assert [trial.generation.decode_tps for trial in results.trials] == [None] * len(results.trials)
    assert any("taken as not measured" in note for note in results.notes)


def _poke(value: object, data: st.DataObject) -> None:
    """Put something odd at one place of a JSON value."""
    while True:
        keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
        if not keys:
            return
        key = data.draw(st.sampled_from(list(keys)))
        child = value[key]  # type: ignore[index]  # a dict or a list, by its keys
        if not isinstance(child, dict | list) or not child or data.draw(st.integers(0, 5)) == 0:
            value[key] = data.draw(NUMBERS)  # type: ignore[index]  # the same
            return
        value = child


def test_times_without_a_zone_are_taken_to_be_of_the_one_named_and_the_results_are_left_as_they_were() -> None:
    results = read("vllm_bench.json")
    naive, before = results.started_at, asdict(results)
    assert naive is not None
    assert naive.tzinfo is None
    fallback = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    for hours in (0, 2):
        found = in_utc(results, zone=dt.timezone(dt.timedelta(hours=hours)), named="there", fallback=fallback)
        assert found.started_at == naive.replace(tzinfo=dt.UTC) - dt.timedelta(hours=hours)
        assert "have no zone" in found.notes[-1]
    assert asdict(results) == before
    undated = in_utc(replace(results, started_at=None, trials=()), zone=dt.UTC, named="UTC", fallback=fallback)
    assert undated.started_at == fallback


@pytest.mark.parametrize(
    ("all_of_it", "said"),
    [(False, "a trial in it lasts longer than 30 days"), (True, "is 1970-01-01, before 2000 or in the future")],
)
def test_times_at_which_no_benchmark_ran_refuse_the_file(tmp_path: Path, *, all_of_it: bool, said: str) -> None:
    text = (Path(__file__).parents[2] / "fixtures" / "foreign" / "guidellm_sampled.json").read_text()
    if all_of_it:
        text = text.replace("17708000", "10")
    else:
        text = text.replace('"request_start": 1770800005.0', '"request_start": -1')
    (tmp_path / "odd.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_results(tmp_path / "odd.json", Choices())
