"""Each format's reader on a sample in its shape: arms, trials in their order, units, and what is said."""

import datetime as dt
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.importers.fields import bits_of, distinct_names, file_stem
from orchestrator.importers.formats import FORMATS, choose_format

from .samples import FILES, body, of_arm, read, read_body, said

UTC = dt.UTC


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_sample_is_of_one_format_alone(file: Path) -> None:
    found = [each.NAME for each in FORMATS if each.recognises(body(file.name))]
    assert len(found) == 1
    results = read(file.name)
    assert results.format == found[0]
    assert {trial.arm for trial in results.trials} == {arm.name for arm in results.arms}


def test_an_unknown_format_says_what_is_known_and_what_was_seen() -> None:
    with pytest.raises(
        InputError, match=r"holds a list of 1, the first an object with who; known are llama-bench"
    ) as e:
        choose_format([{"who": 1}], "auto", name="x.json")
    assert all(each.NAME in str(e.value) for each in FORMATS)
    with pytest.raises(InputError, match=r"x.json: is not llama-bench -o json: it holds a str"):
        choose_format("text", "llama-bench", name="x.json")


# ---- llama-bench ----


def test_llama_bench_repetitions_are_trials_in_their_order() -> None:
    results = read("llama_bench.json")
    assert [arm.name for arm in results.arms] == ["Qwen3-4B-Q4_K_M flash_attn=0", "Qwen3-4B-Q4_K_M flash_attn=1"]
    first = of_arm(results, results.arms[0].name)
    assert [trial.generation.prompt for trial in first] == ["pp512"] * 3 + ["tg128"] * 3
    assert [trial.wall_s for trial in first[:3]] == pytest.approx([0.640, 0.642, 0.641])
    assert first[0].generation.prefill_tps == pytest.approx(512 / 0.640)
    assert first[3].generation.decode_tps == pytest.approx(128 / 2.560)
    assert first[3].generation.prefill_tps is None
    assert first[1].started_at == dt.datetime(2026, 2, 10, 21, 0, 0, 640000, tzinfo=UTC)
    assert results.timing == "placed"


def test_llama_bench_of_2024_with_a_field_per_backend_is_read() -> None:
    results = read("llama_bench_2024_08.json")
    (arm,) = results.arms
    assert [trial.generation.prompt for trial in results.trials] == ["pp512"] * 2 + ["tg128"] * 2
    assert results.trials[2].generation.decode_tps == pytest.approx(32)
    assert (results.tool_version, results.machine.chip, arm.model.bits) == ("921baa4b 3600", "Apple M2 Pro", 4)
    assert not said(results, "fields not known here")
    old = body("llama_bench_2024_08.json")
    both = read_body([*old, *(test | {"metal": False, "gpu_blas": False} for test in old)])
    assert len(both.arms) == 2  # another backend is another arm


def test_llama_bench_machine_model_and_unknown_fields() -> None:
    results = read("llama_bench.json")
    arm = results.arms[1]
    assert (results.tool_version, results.machine.chip) == ("0f1e2d3c 7001", "Apple M4 Pro")
    assert (arm.model.name, arm.model.bits, arm.model.weights_bytes) == ("Qwen3-4B-Q4_K_M", 4, 2497000000)
    assert arm.settings["flash_attn"] == 1
    assert arm.kept["quantum_mode"] == "off"
    assert said(results, "fields not known here, kept with the arms: quantum_mode")


def test_llama_bench_at_depth_and_both_in_one() -> None:
    test = body("llama_bench.json")[0] | {"n_gen": 64, "n_depth": 1024, "samples_ns": [1_000_000_000]}
    (trial,) = read_body([test]).trials
    assert trial.generation.prompt == "pp512+tg64 @ d1024"
    assert (trial.generation.prompt_tokens, trial.generation.cached_tokens) == (1536, 1024)
    assert (trial.generation.end_to_end_tps, trial.generation.decode_tps) == (64.0, None)


def test_llama_bench_without_samples_and_with_a_zero() -> None:
    test = body("llama_bench.json")[0]
    without = read_body([{key: value for key, value in test.items() if key != "samples_ns"}])
    assert said(without, "samples_ns: missing")
    assert len(without.trials) == 1
    zero = read_body([test | {"samples_ns": [0, 640_000_000]}])
    assert [trial.error for trial in zero.trials] == ["no time was recorded", None]
    assert said(zero, "samples_ns: 0 or no number, once, taken as not measured")


# ---- mlx-chronos ----


def test_mlx_chronos_phases_and_places_in_time() -> None:
    results = read("mlx_chronos.json")
    assert [trial.generation.prompt_class for trial in results.trials] == (
        ["ttft_cold"] * 3 + ["ttft_cached"] * 3 + ["throughput"] * 3
    )
    last = results.trials[-1]
    assert last.generation.end_to_end_tps == 18.4
    assert last.generation.completion_tokens == 100
    assert results.started_at is not None
    assert results.trials[0].started_at == results.started_at + dt.timedelta(seconds=10.0)
    assert (last.power_source, last.thermal) == ("mains", "nominal")
    assert (results.machine.memory_bytes, results.arms[0].model.bits) == (16 * 2**30, 4)


def test_mlx_chronos_zero_is_not_measured() -> None:
    results = read("mlx_chronos.json")
    assert [trial.generation.ttft_s for trial in results.trials[3:6]] == [0.011, None, 0.012]
    assert said(results, "ttft_cached_raw: 0 or no number, once")


def test_mlx_chronos_words_are_no_tokens() -> None:
    value = body("mlx_chronos.json")
    value["metrics"]["token_count_source"] = "word_fallback"
    results = read_body(value)
    one = results.trials[-1].generation
    assert (one.end_to_end_tps, one.decode_tps, one.completion_tokens) == (None, None, None)
    assert "words_not_tokens" in one.flags
    assert said(results, "words were counted, not tokens")


# ---- dflash-mlx ----


def test_dflash_runs_are_plain_then_drafted() -> None:
    results = read("dflash_mlx.json")
    assert [trial.arm for trial in results.trials] == ["baseline", "dflash"] * 3
    plain, drafted = results.trials[0].generation, results.trials[1].generation
    assert (plain.requested, plain.engaged, plain.ttft_s) == (False, False, 0.41)
    assert (drafted.requested, drafted.engaged, drafted.verify_steps) == (True, True, 80)
    assert drafted.completion_tokens == 512
    assert drafted.accept_length == pytest.approx(511 / 80)
    assert drafted.acceptance_rate is None
    assert said(results, "acceptance_ratio: of all tokens here")
    assert (results.started_at, results.timing) == (None, "none")
    assert results.arms[1].block_size == 16
    assert "block_tokens" not in results.arms[0].settings


@pytest.mark.parametrize("name", ["dflash_mlx_old.json", "dflash_mlx_runs.jsonl"])
def test_dflash_other_shapes_have_the_same_arms(name: str) -> None:
    results = read(name)
    assert [arm.name for arm in results.arms] == ["baseline", "dflash"]
    assert results.arms[1].draft is not None
    assert results.arms[1].draft.name == "z-lab/Qwen3.5-4B-DFlash"


def test_dflash_a_draft_without_a_cycle_is_not_known_to_have_run() -> None:
    value = body("dflash_mlx.json")
    value["prompts"][0]["runs"][0]["dflash"]["cycles"] = 0
    one = read_body(value).trials[1].generation
    assert (one.requested, one.engaged, one.evidence) == (True, None, None)


def test_dflash_seconds_named_milliseconds_are_seen() -> None:
    value = body("dflash_mlx.json")
    value["prompts"][0]["runs"][0]["baseline"]["ttft_ms"] = 0.41
    results = read_body(value)
    assert [trial.generation.ttft_s for trial in of_arm(results, "baseline")] == [0.41, 0.41, 0.41]
    assert said(results, "ttft_ms: named as milliseconds, but these are seconds")


# ---- guidellm ----


def test_guidellm_rates_come_from_the_stamps() -> None:
    results = read("guidellm.json")
    assert [arm.name for arm in results.arms] == ["synchronous", "concurrent streams=4"]
    one = results.trials[0].generation
    assert one.ttft_s == pytest.approx(0.2, abs=1e-5)
    assert one.decode_tps == pytest.approx(40.0, rel=1e-5)
    assert one.cached_tokens is None
    assert results.timing == "own"
    assert results.trials[0].started_at == dt.datetime.fromtimestamp(1770800000, UTC)
    assert results.arms[0].model.name == "Qwen/Qwen3-4B"


def test_guidellm_failed_requests_fail() -> None:
    failed = [trial for trial in read("guidellm.json").trials if trial.error]
    assert [trial.error for trial in failed] == ["the request failed: connection reset"]


def test_guidellm_of_another_version_and_without_requests() -> None:
    (old,) = read("guidellm_old.json").trials
    assert old.generation.ttft_s == pytest.approx(0.25, abs=1e-5)
    value = body("guidellm.json")
    value["benchmarks"] = value["benchmarks"][:1]
    value["benchmarks"][0]["requests"] = {"successful": []}
    value["benchmarks"][0]["metrics"]["output_token_count"] = {"successful": {"median": 0.0}}
    summary = read_body(value)
    (one,) = summary.trials
    assert (one.generation.ttft_s, one.generation.completion_tokens) == (0.2, None)
    assert said(summary, "output_token_count.median: 0 or no number")


@pytest.mark.parametrize(
    ("name", "version", "arms", "prompt"),
    [
        ("guidellm_0_3.json", None, ["synchronous", "concurrent streams=4"], '"prompt_tokens=128,output_tokens=64"'),
        ("guidellm_0_5.json", "0.5.0", ["synchronous"], '["prompt_tokens=128,output_tokens=64"]'),
    ],
)
def test_guidellm_of_versions_before_0_6(name: str, version: str | None, arms: list[str], prompt: str) -> None:
    """The time that a load began at names no arm: files of the same load can be compared."""
    results = read(name)
    assert results.tool_version == version
    assert [arm.name for arm in results.arms] == arms
    assert {arm.model.name for arm in results.arms} == {"Qwen/Qwen3-4B"}
    one = results.trials[0].generation
    assert one.prompt == f"requests of {prompt}"
    assert (one.prompt_tokens, one.completion_tokens) == (128, 64)
    assert (one.ttft_s, one.decode_tps) == (pytest.approx(0.25, abs=1e-5), pytest.approx(40.0, rel=1e-5))
    assert not said(results, "not known here")


def test_guidellm_chunks_are_not_taken_for_tokens() -> None:
    """Without a usage, 0.5 leaves the count out, and 0.6 puts the number of chunks in its place."""
    value = body("guidellm_0_5.json")
    value["benchmarks"][0]["requests"]["successful"][2]["output_tokens"] = 64
    for results in (read("guidellm_0_5.json"), read_body(value)):
        last = results.trials[2]
        assert (last.error, last.generation.ttft_s) == (None, pytest.approx(0.25, abs=1e-5))
        assert (last.generation.completion_tokens, last.generation.end_to_end_tps) == (None, None)
        assert said(results, "chunks of its streams are no tokens")
    oldest = read("guidellm_0_1.json")
    assert [arm.name for arm in oldest.arms] == ["synchronous", "throughput", "asynchronous rate=0.7"]
    one = oldest.trials[0].generation
    assert (one.ttft_s, one.total_s, one.prompt_tokens) == (0.25, 2.0, 128)
    assert (one.completion_tokens, one.decode_tps) == (None, None)
    assert said(oldest, "synchronous: 1 of 3 requests (33.3 %) failed")


# ---- vLLM ----


def test_vllm_of_2025_with_metadata_and_a_colon_in_a_key_is_read() -> None:
    results = read("vllm_bench_2025_05.json")
    (trial,) = results.trials
    assert trial.generation.ttft_s == pytest.approx(0.1)
    assert results.arms[0].settings["request_rate"] == "inf"
    assert said(results, "fields not known here, kept with the arms: deployment, gateway, input_len, output_len")
    assert not said(results, "request_goodput")
    assert not said(results, "failed")


def test_vllm_summary_is_one_trial_dated_at_the_end_in_no_zone() -> None:
    results = read("vllm_bench.json")
    (trial,) = results.trials
    assert (trial.generation.ttft_s, trial.generation.end_to_end_tps) == (0.1, 20.0)
    assert trial.generation.decode_tps == pytest.approx(1 / 0.048)
    assert trial.started_at == dt.datetime(2026, 2, 10, 21, 59, 40)  # noqa: DTZ001  # as the file has it
    assert results.arms[0].kept["tp"] == "1"


def test_vllm_without_a_duration_has_no_start_and_not_its_end() -> None:
    (trial,) = read_body(body("vllm_bench.json") | {"duration": None}).trials
    assert trial.started_at is None


def test_vllm_summary_in_seconds_under_the_name_of_milliseconds() -> None:
    value = body("vllm_bench.json")
    seconds = {name: number / 1000 for name, number in value.items() if name.endswith("_ms")}
    results = read_body(value | seconds)
    assert results.trials[0].generation.ttft_s == pytest.approx(0.1)
    assert results.trials[0].generation.decode_tps == pytest.approx(1 / 0.048)
    assert said(results, "named as milliseconds, but these are seconds")


def test_vllm_requests_in_order_of_their_start_and_failures() -> None:
    results = read("vllm_bench_detailed.jsonl")
    first = of_arm(results, results.arms[0].name)
    assert [trial.generation.total_s for trial in first] == pytest.approx([0.1 + 99 * 0.021, 0.1 + 99 * 0.02, None])
    assert first[1].started_at is not None
    assert first[0].started_at is not None
    assert (first[1].started_at - first[0].started_at).total_seconds() == 3.0
    assert first[2].error == "Service Unavailable"
    assert first[0].generation.decode_tps == pytest.approx(1 / 0.021)
    assert said(results, "up to 2 requests ran at once")


def test_vllm_counters_of_all_requests_prove_nothing_of_one() -> None:
    results = read("vllm_bench_detailed.jsonl")
    one = of_arm(results, results.arms[1].name)[0].generation
    assert (one.requested, one.engaged, one.accept_length) == (True, None, None)
    details = ("ttfts", "itls", "input_lens", "output_lens", "start_times", "generated_texts", "errors")
    summary = {name: value for name, value in body("vllm_bench_detailed.jsonl")[1].items() if name not in details}
    whole = read_body(summary).trials[0].generation
    assert (whole.engaged, whole.acceptance_rate, whole.accept_length) == (True, 0.625, 2.25)


# ---- llama-benchy ----


def test_llama_benchy_values_are_trials_and_lists_that_do_not_fit_are_left_out() -> None:
    results = read("llama_benchy.json")
    one, two = results.arms
    assert [trial.generation.ttft_s for trial in of_arm(results, one.name)] == pytest.approx([2.078, 2.074])
    assert [trial.generation.ttft_s for trial in of_arm(results, two.name)] == [None] * 3
    assert said(results, "e2e_ttft: fewer values than others")
    assert said(results, "values have no times of their own")
    assert results.timing == "none"


def test_llama_benchy_seconds_named_milliseconds_are_seen() -> None:
    value = body("llama_benchy.json")
    value["benchmarks"] = value["benchmarks"][:1]
    value["benchmarks"][0]["e2e_ttft"]["values"] = [2.078, 2.074]
    results = read_body(value)
    assert [trial.generation.ttft_s for trial in results.trials] == [2.078, 2.074]
    assert said(results, "e2e_ttft: named as milliseconds")


# ---- words ----


@pytest.mark.parametrize(
    ("text", "bits"),
    [("Qwen3-4B-4bit", 4), ("qwen3 4B Q4_K - Medium", 4), ("8bit", 8), ("nvfp4", 4), ("w4", 4), ("Qwen3-4B", None)],
)
def test_bits_are_read_out_of_names(text: str, bits: int | None) -> None:
    assert bits_of(text) == bits


def test_names_say_what_differs() -> None:
    names = distinct_names([{"model": "m", "a": 1, "b": 2}, {"model": "m", "a": 1, "b": 3}], first=("model",))
    assert names == ["m b=2", "m b=3"]
    assert file_stem("C:\\models\\Qwen3.gguf") == "Qwen3"


# ---- what a file leaves out, and older versions of it ----


def test_failed_cancelled_and_left_out_requests_are_reported_with_their_share() -> None:
    vllm = read("vllm_bench_failed.json")
    assert said(vllm, "30 of 50 requests (60 %) failed; the figures are of the others")
    old = {key: value for key, value in body("vllm_bench_failed.json").items() if key != "failed"}
    assert said(read_body(old), "30 of 50 requests (60 %) were sent, but have no result")
    sampled = read("guidellm_sampled.json")
    assert said(sampled, "3 of 25 requests (12 %) failed")
    assert said(sampled, "2 of 25 requests (8 %) were cancelled or not completed")
    assert said(sampled, "left out: synchronous: the file keeps 2 of 20 completed requests (10 %)")
    for totals in (
        {"request_totals": {"successful": 3, "errored": 1, "incomplete": 0, "total": 4}},
        {"run_stats": {"requests_made": {"successful": 3, "errored": 1, "incomplete": 0, "total": 4}}},
    ):
        first, *others = body("guidellm_old.json")["benchmarks"]
        assert said(read_body({"benchmarks": [first | totals, *others]}), "1 of 4 requests (25 %) failed")
    detailed = body("vllm_bench_detailed.jsonl")[0]
    requests = len(detailed["ttfts"])
    detailed |= {"errors": ["", *["timed out"] * (requests - 1)], "failed": 0, "completed": 1, "num_prompts": requests}
    assert said(read_body(detailed), f"{requests - 1} of {requests} requests")
    for name in ("vllm_bench.json", "guidellm_old.json"):
        assert not said(read(name), "requests (")


def test_counts_that_contradict_each_other_are_not_taken() -> None:
    good = read("vllm_bench_failed.json").trials[0].generation
    assert good.completion_tokens
    value = body("vllm_bench_failed.json")
    value["request_throughput"] *= 2.5
    results = read_body(value)
    assert (results.trials[0].generation.completion_tokens, results.trials[0].generation.prompt_tokens) == (None, None)
    assert said(results, "does not follow from those completed")


def test_mlx_chronos_0_1() -> None:
    results = read("mlx_chronos_0_1_0.json")
    assert results.tool_version == "0.1.0"
    assert [trial.generation.prompt_class for trial in results.trials] == ["ttft_cold", "ttft_cached", "throughput"]
    assert [trial.generation.ttft_s for trial in results.trials] == [0.082, 0.009, None]
    assert results.trials[2].generation.end_to_end_tps is None  # what it counted is not stated
    assert results.arms[0].kept["metrics"]["tokens_per_second"] == 21.4
    assert said(results, "no single trials in the file")
    assert said(results, "token_count_source: not stated")
    assert said(results, "no trial has a time of its own: the file does not state how long its phases took")
    assert [(trial.started_at, trial.wall_s) for trial in results.trials] == [(None, None)] * 3
    later = read("mlx_chronos_0_1_1.json")
    assert [trial.generation.ttft_s for trial in later.trials] == [0.081, 0.079, 0.011, 0.009, None, None]
    assert [(trial.started_at, trial.wall_s) for trial in later.trials] == [(None, None)] * 6


def test_llama_bench_files_that_were_appended_to_or_cut_off() -> None:
    assert len(read("llama_bench_appended.json").trials) == len(read_body(body("llama_bench.json")[:2]).trials) + 3
    assert len(read("llama_bench_cut.json").trials) == len(read_body(body("llama_bench.json")[:2]).trials)
