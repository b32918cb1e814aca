"""dflash-mlx' benchmark: `results.json` of either shape, or `runs.jsonl`.

Each run decodes plainly (`baseline`), then with the draft (`dflash`), always in this order. The file has no time at
all. `acceptance_ratio` there is accepted tokens over all tokens generated; here a rate is accepted over proposed, which
the file does not state, so the ratio is kept with the arm and no rate is stored.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.importers.fields import Tally, bits_of, distinct_names, seconds
from orchestrator.importers.foreign_run import (
    ForeignArm,
    ForeignGeneration,
    ForeignResults,
    ForeignTrial,
    Machine,
    Model,
    Versions,
)

NAME = "dflash-mlx"
FILE = "dflash benchmark's results.json or runs.jsonl"
PLAIN, DRAFTED = "baseline", "dflash"
_RUN = frozenset("run thermal_pressure baseline dflash speedup prompt_id".split())
_ENTRY = frozenset(
    (
        "ttft_ms generation_tps prefill_tok_s prefill_tok_s_physical prefill_tok_s_apparent prefill_tokens_physical"
        " peak_memory_gb memory_end tokens_per_cycle cycles acceptance_ratio acceptance_first_20_avg"
        " acceptance_last_20_avg accepted_from_draft adaptive_metrics phase_timings_us logical_ctx_tokens"
        " prefill_tokens_computed prefill_tokens_restored"
    ).split()
)
_TOP = frozenset("hardware config runs summary prompts invocation".split())
_SETTINGS = (
    "block_tokens draft_quant draft_sink_size draft_window_size prefill_step_size target_fa_window use_chat_template"
    " verify_len_cap verify_mode max_tokens max_new_tokens no_eos"
).split()
_FROM_CONFIG = frozenset(
    "block_tokens draft_quant draft_sink_size draft_window_size verify_len_cap verify_mode".split()
)
_Pair = tuple[Mapping[str, Any], Mapping[str, Any]]  # configuration, run


def recognises(body: Any) -> bool:
    """Return whether the body is the object of a results file, or the list of a runs file."""
    if isinstance(body, list):
        return bool(body) and all(isinstance(each, Mapping) and _is_run(each) and "model" in each for each in body)
    if not isinstance(body, Mapping) or "hardware" not in body or "config" not in body:
        return False
    return any(_is_run(run) for _, run in _pairs(body))


def read(body: Any) -> ForeignResults:
    """Read a decoded file; see the module."""
    tally = Tally()
    pairs = list(_pairs(body))
    hardware: Mapping[str, Any] = {} if isinstance(body, list) else body["hardware"]
    kept = {} if isinstance(body, list) else tally.rest(body, _TOP)
    configurations = [_configuration(config) for config, _ in pairs]
    suffixes = [name.strip() for name in distinct_names(configurations, first=())]
    arms: dict[str, ForeignArm] = {}
    trials: list[ForeignTrial] = []
    for (config, run), suffix in zip(pairs, suffixes, strict=True):
        for which in (PLAIN, DRAFTED):
            entry = run.get(which)
            if not entry:
                continue
            name = f"{which} {suffix}".strip()
            if not isinstance(body, list):
                tally.rest(run, _RUN, "runs.")
            extra = tally.rest(entry, _ENTRY, f"{which}.")
            arms.setdefault(name, _arm(name, which, config, hardware, kept | extra))
            trials.append(_trial(name, which, config, run, tally))
    tally.say("acceptance_ratio: of all tokens here, not of the proposed ones; kept, and no acceptance rate was taken")
    tally.say(f"runs are {PLAIN} then {DRAFTED}, always in this order")
    return ForeignResults(
        format=NAME,
        tool_version=hardware.get("dflash_mlx_version"),
        started_at=None,
        timing="none",
        machine=_machine(hardware, tally),
        versions=Versions(
            python=hardware.get("python"),
            mlx=hardware.get("mlx_version"),
            mlx_lm=hardware.get("mlx_lm_version"),
            packages={
                "dflash-mlx": hardware.get("dflash_mlx_version"),
                "mlx": hardware.get("mlx_version"),
                "mlx-lm": hardware.get("mlx_lm_version"),
            },
        ),
        arms=tuple(sorted(arms.values(), key=lambda arm: not arm.name.startswith(PLAIN))),
        trials=tuple(trials),
        notes=tally.notes(),
    )


def _is_run(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(value.get(which), Mapping) for which in (PLAIN, DRAFTED))


def _pairs(body: Any) -> Iterator[_Pair]:
    """Each run with its configuration, in the order of the file."""
    if isinstance(body, list):
        yield from ((run, run) for run in body)
        return
    prompts: Sequence[Mapping[str, Any]] = body.get("prompts") or [body]
    for prompt in prompts:
        config = dict(body["config"]) | dict(prompt.get("config") or {})
        for run in prompt.get("runs") or []:
            yield config, run


def _configuration(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": config.get("model") or config.get("target_model"),
        "draft": config.get("draft") or config.get("draft_model"),
    } | {name: config[name] for name in _SETTINGS if name in config}


def _arm(
    name: str, which: str, config: Mapping[str, Any], hardware: Mapping[str, Any], kept: Mapping[str, Any]
) -> ForeignArm:
    known = _configuration(config)
    drafted = which == DRAFTED
    draft = str(known["draft"]) if drafted and known["draft"] else None
    model = str(known["model"] or "unknown")
    settings = {key: value for key, value in known.items() if key not in ("model", "draft")}
    if not drafted:
        settings = {key: value for key, value in settings.items() if key not in _FROM_CONFIG}
    return ForeignArm(
        name=name,
        engine=NAME if drafted else "mlx_lm",
        engine_version=hardware.get("dflash_mlx_version" if drafted else "mlx_lm_version"),
        model=Model(name=model, bits=bits_of(model)),
        draft=None if draft is None else Model(name=draft, bits=bits_of(str(config.get("draft_quant") or ""))),
        block_size=config.get("block_tokens") if drafted else None,
        settings=settings,
        kept={key: value for key, value in config.items() if key not in ("prompt", PLAIN, DRAFTED)} | dict(kept),
    )


def _trial(name: str, which: str, config: Mapping[str, Any], run: Mapping[str, Any], tally: Tally) -> ForeignTrial:
    thermal = run.get("thermal_pressure")
    return ForeignTrial(
        arm=name,
        generation=_generation(which, config, run, tally),
        thermal=None if thermal in (None, "unknown") else str(thermal),
    )


def _generation(which: str, config: Mapping[str, Any], run: Mapping[str, Any], tally: Tally) -> ForeignGeneration:
    entry = run[which]
    prompt = str(run.get("prompt_id") or config.get("prompt_id") or "prompt")
    prompt_tokens = tally.count(config, "prompt_tokens")
    prefill = tally.number(entry, "prefill_tok_s_physical") or tally.number(entry, "prefill_tok_s")
    likely_s = prompt_tokens / prefill if prompt_tokens and prefill else None
    peak = tally.number(entry, "peak_memory_gb", scale=1e9)
    limit = int(config.get("max_tokens") or config.get("max_new_tokens") or 0)
    shared: dict[str, Any] = {
        "prompt": prompt,
        "prompt_class": str(config.get("prompt_suite") or config.get("suite") or "unknown"),
        "max_tokens": limit,
        "prompt_tokens": prompt_tokens,
        "ttft_s": seconds(tally.number(entry, "ttft_ms"), likely_s, "ttft_ms", tally),
        "prefill_tps": prefill,
        "decode_tps": tally.number(entry, "generation_tps"),
        "peak_memory_bytes": None if peak is None else round(peak),
    }
    if which == PLAIN:
        tokens = limit if config.get("no_eos") and limit else None
        return ForeignGeneration(**shared, completion_tokens=tokens, requested=False, engaged=False)
    return ForeignGeneration(**shared, **_drafting(entry, tally))


def _drafting(entry: Mapping[str, Any], tally: Tally) -> dict[str, Any]:
    """The file's statistics of the draft; its cycles are verify steps."""
    cycles, a_cycle = tally.count(entry, "cycles"), tally.number(entry, "tokens_per_cycle")
    tokens = round(cycles * a_cycle) if cycles and a_cycle else None
    accepted = entry.get("accepted_from_draft")
    of_tokens = "" if a_cycle is None else f", {a_cycle:.3f} tokens each"
    of_drafts = "" if accepted is None else f", {accepted} tokens accepted"
    return {
        "completion_tokens": tokens,
        "verify_steps": cycles,
        # The first token came from the prefill.
        "accept_length": (tokens - 1) / cycles if tokens and cycles else a_cycle,
        "requested": True,
        "engaged": None if cycles is None else True,
        "useful": None if accepted is None else accepted > 0,
        "evidence": None if cycles is None else f"{cycles} verify cycles{of_tokens}{of_drafts}",
    }


def _machine(hardware: Mapping[str, Any], tally: Tally) -> Machine:
    memory = tally.number(hardware, "memory_gb", scale=2**30)
    return Machine(
        chip=hardware.get("chip"), memory_bytes=None if memory is None else round(memory), detail=dict(hardware)
    )
