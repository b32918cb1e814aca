"""Overrides in, plan out: everything that a run needs, composed and checked before anything runs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from conf.store import PLAN_GROUPS
from orchestrator.configuration.arms import ARM_GROUPS, build_arms, checked_option
from orchestrator.configuration.checks import all_settings
from orchestrator.configuration.detecting import NoiseOf, with_rounds_to_detect
from orchestrator.configuration.groups import Part, Parts
from orchestrator.configuration.names import choose_control
from orchestrator.configuration.overrides import COMMAND_LINE, Setting, merge, nearest, parse
from orchestrator.configuration.secrets import refuse_known, refuse_literals, watch_for_literals, watch_references
from orchestrator.configuration.workload import read_workload
from orchestrator.errors import InputError
from orchestrator.plan import Arm, Deadlines, Design, Gate, Plan, Prompt
from orchestrator.planning.fetching import learn_sizes, pinned
from orchestrator.planning.residency import choose_order
from orchestrator.schedule import minimum_rounds, rounds_by_class, square_rounds, whole_squares
from orchestrator.secrecy import guard

ROOT_KEYS = ("control", "experiment")
DEFAULT_ROUNDS = 8
MOST_TRIALS = 2_000_000
UNNAMED = "unnamed"

_WHY_NOT_SWEPT = {
    "design": "arms measured under different designs cannot be compared; make one run for each",
    "gate": "arms that start under different conditions cannot be compared; make one run for each",
    "db": "a run is stored in one database; name one",
    "sweep": "a run is one stored experiment; make one run for each",
    "experiment": "a run belongs to one experiment; name one",
    "control": "a run has one control, which all other arms are compared with; name one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Composed:
    """A plan, and where its results go, which is no part of what is measured."""

    plan: Plan
    db_url: str | None  # None: INTERLACE_DB, else the user's data folder


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The combined settings of the sweep and the command line."""

    sweep: str | None
    products: tuple[tuple[Setting, ...], ...]  # arm-level settings, one list per product of arms
    shared: dict[str, Setting]  # the others, by key


def make_plan(
    overrides: Sequence[str],
    *,
    config_dir: Path | None = None,
    noise_of: NoiseOf = lambda url: None,
    ask_hub: bool = False,
) -> Composed:
    """The plan that these overrides describe.

    Args:
        overrides: Hydra override lines, as one would give them to --multirun.
        config_dir: a folder with the user's own groups, which win over shipped ones of the same name.
        noise_of: this host's noise and drift by a database's URL, for `design.detect`; None: none measured yet.
        ask_hub: whether the hub is asked, for a few seconds, for sizes that nothing on this machine states.

    Raises:
        InputError: anything that keeps the plan from running, in one line.
    """
    guard()
    watch_for_literals(overrides)
    parts = Parts(config_dir)
    defaults, root = parts.root()
    request = _request(overrides, parts)
    _load_shared(request, defaults, parts)
    arms, notes = build_arms(request.products, defaults, parts)
    refuse_literals(arms)
    watch_references(arms)
    arms = pinned(arms)
    if ask_hub:
        learn_sizes(arms)
    prompts, prompt_notes = _prompts(request, defaults, parts)
    control = choose_control(arms, _root_value(request, root, "control"))
    url: str | None = _group("db", request, defaults, parts)["url"]
    wanted = _group("design", request, defaults, parts)
    values, detect_notes = with_rounds_to_detect(wanted, arms=len(arms), noise=lambda: noise_of(url))
    design, design_notes = _design(values, arms, prompts)
    plan = Plan(
        interlace_version=version("interlace"),
        experiment=_root_value(request, root, "experiment") or request.sweep or UNNAMED,
        command=(*_folder(config_dir), *(_redacted(line) for line in overrides)),
        arms=arms,
        control=control,
        prompts=prompts,
        design=design,
        gate=Gate(**_group("gate", request, defaults, parts)),
        notes=(*notes, *prompt_notes, *detect_notes, *design_notes, *_shadow_notes(parts)),
    )
    plan = _reaching_its_level(plan)
    refuse_known(plan)
    return Composed(plan=plan, db_url=url)


def db_url(overrides: Sequence[str] = (), *, config_dir: Path | None = None) -> str | None:
    """Return the database URL from the configuration, or None if it is not set. For commands that compose no plan."""
    parts = Parts(config_dir)
    defaults, _ = parts.root()
    request = _request(overrides, parts)
    _load_shared(request, defaults, parts)
    url: str | None = _group("db", request, defaults, parts)["url"]
    return url


# ---- the request ----


def _request(overrides: Sequence[str], parts: Parts) -> _Request:
    command = parse(overrides, origin=COMMAND_LINE, options_of=parts.options)
    _check_keys(command)
    sweep = next((setting for setting in command if setting.key == "sweep"), None)
    command = [setting for setting in command if setting is not sweep]
    if sweep is None or sweep.values == (None,):
        return _assemble(None, [[]], [], command)
    name = checked_option(sweep, sweep.values[0], parts)
    parts.load([("sweep", name)])
    stored = parts.values(("sweep", name))
    origin = str(parts.file(("sweep", name)))
    common = _stored(stored["overrides"], origin, parts)
    arms = [_stored(lines, origin, parts) for lines in stored["arms"]] or [[]]
    for setting in (setting for arm in arms for setting in arm if setting.group not in ARM_GROUPS):
        raise InputError(
            f"{setting.where}: {setting.group} is shared by all arms and belongs under `overrides`; "
            f"an arm sets {', '.join(ARM_GROUPS)} and keys below them"
        )
    return _assemble(name, arms, common, command)


def _stored(lines: Sequence[str], origin: str, parts: Parts) -> list[Setting]:
    settings = parse(lines, origin=origin, options_of=parts.options)
    _check_keys(settings)
    if nested := next((setting for setting in settings if setting.key == "sweep"), None):
        raise InputError(f"{nested.where}: a sweep cannot name another; copy its overrides")
    return settings


def _assemble(
    sweep: str | None, arms: Sequence[Sequence[Setting]], common: Sequence[Setting], command: Sequence[Setting]
) -> _Request:
    """Combine settings: the command line overrides the sweep's arms, which override the sweep's common settings."""
    products = []
    for arm in arms:
        settings = merge(common, arm, command)
        products.append(tuple(setting for setting in settings if setting.group in ARM_GROUPS))
    shared = [setting for setting in merge(common, command) if setting.group not in ARM_GROUPS]
    return _Request(sweep=sweep, products=tuple(products), shared={setting.key: setting for setting in shared})


def _check_keys(settings: Sequence[Setting]) -> None:
    """Require that every key belongs to a group or the root, and that only arms and the prompt set are swept."""
    for setting in settings:
        group, below = setting.group, "." in setting.key
        known = group in PLAN_GROUPS if below else setting.key in (*PLAN_GROUPS, *ROOT_KEYS)
        if not known:
            raise InputError(
                f"{setting.where}: no group or key is named {group!r}; {_meant(setting)}"
                f"valid: {', '.join([*PLAN_GROUPS, *ROOT_KEYS])}"
            )
        if group == "sweep" and below:
            raise InputError(f"{setting.where}: a stored experiment is changed in its file, or by plain overrides")
        if setting.swept and group in _WHY_NOT_SWEPT:
            raise InputError(f"{setting.where} cannot be swept: {_WHY_NOT_SWEPT[group]}")
        if setting.swept and group == "workload" and below:
            raise InputError(
                f"{setting.where} cannot be swept: all arms answer the same prompts; "
                "join several prompt sets as workload=a,b or make one run for each"
            )


def _meant(setting: Setting) -> str:
    """Suggest, as a question, the key that was probably meant: most often a setting without its group."""
    found = _ending_in(setting.key)
    if not found:
        known = [*PLAN_GROUPS, *ROOT_KEYS]
        settings = [key.partition(".")[2] for key in all_settings()]
        near = nearest(setting.group, known) if "." in setting.key else None
        near = near or nearest(setting.key, [*known, *settings])
        found = _ending_in(near) if near in settings else [near] if near else []
    return f"did you mean {' or '.join(found)}? " if found else ""


def _ending_in(key: str) -> list[str]:
    return [each for each in all_settings() if each.endswith(f".{key}")]


# ---- the parts that all arms share ----


def _group(group: str, request: _Request, defaults: Mapping[str, str], parts: Parts) -> dict[str, Any]:
    """One shared group's resolved values, its name left out where the plan has no place for it."""
    option = _options(group, request, defaults, parts)[0]
    values = parts.values((group, option), _below(group, request))
    return {key: value for key, value in values.items() if key != "name"}


def _load_shared(request: _Request, defaults: Mapping[str, str], parts: Parts) -> None:
    groups = ("workload", "design", "gate", "db")
    parts.load((group, option) for group in groups for option in _options(group, request, defaults, parts))


def _options(group: str, request: _Request, defaults: Mapping[str, str], parts: Parts) -> list[str]:
    setting = request.shared.get(group)
    if setting is None:
        return [defaults[group]]
    return list(dict.fromkeys(checked_option(setting, value, parts) for value in setting.values))


def _below(group: str, request: _Request) -> list[tuple[Setting, Any]]:
    return [(each, each.values[0]) for key, each in request.shared.items() if key.startswith(f"{group}.")]


def _root_value(request: _Request, root: Mapping[str, Any], key: str) -> str | None:
    setting = request.shared.get(key)
    value = root[key] if setting is None else setting.values[0]
    if isinstance(value, str) and "${" in value:
        where = key if setting is None else setting.where
        raise InputError(f"{where}: {key} takes a name as it is; a reference (${{...}}) has no meaning there")
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, (int, float)):
        return str(value)
    where = key if setting is None else setting.where
    raise InputError(f"{where}: {key} takes a name, not {value!r}")


def _prompts(
    request: _Request, defaults: Mapping[str, str], parts: Parts
) -> tuple[tuple[Prompt, ...], tuple[str, ...]]:
    """The prompt sets of all chosen workloads, joined, and what was decided when their files were read."""
    options = _options("workload", request, defaults, parts)
    file = request.shared.get("workload.file")
    if file is not None and len(options) > 1:
        raise InputError(f"{file.where}: one file cannot serve several workloads ({', '.join(options)}); choose one")
    prompts: list[Prompt] = []
    notes: list[str] = []
    workloads = [_workload(("workload", option), request, parts) for option in options]
    _check_use(workloads, request)
    for workload in workloads:
        found = read_workload(workload)
        prompts += found.prompts
        notes += found.notes
    _check_ids(prompts)
    return tuple(prompts), tuple(notes)


def _workload(part: Part, request: _Request, parts: Parts) -> dict[str, Any]:
    values = parts.values(part, _below("workload", request))
    file = request.shared.get("workload.file")
    if values["file"] is not None:
        values["file"] = str(parts.absolute(values["file"], part=part, setting=file))
    return values


# The kinds of workloads that use a setting.
_KINDS_OF_SETTINGS = {
    "file": ("prompts", "depths"),
    "column": ("prompts",),
    "first": ("prompts",),
    "document_tokens": ("two_turns",),
    "depths": ("depths",),
    "seed": ("two_turns", "depths"),
}


def _check_use(workloads: Sequence[Mapping[str, Any]], request: _Request) -> None:
    """Require that at least one chosen workload uses each setting."""
    kinds = {workload["kind"] for workload in workloads}
    for key, users in _KINDS_OF_SETTINGS.items():
        setting = request.shared.get(f"workload.{key}")
        if setting is not None and kinds.isdisjoint(users):
            chosen = ", ".join(workload["name"] for workload in workloads)
            belongs = " and ".join(f"workload={kind}" for kind in users)
            raise InputError(f"{setting.where}: {key} does not apply to {chosen}; it belongs to {belongs}")


def _check_ids(prompts: Sequence[Prompt]) -> None:
    workloads: dict[str, str] = {}
    for prompt in prompts:
        if prompt.id in workloads:
            raise InputError(
                f"prompt id {prompt.id!r} is in workload {workloads[prompt.id]} and in {prompt.workload}; "
                "rename one of them in its file"
            )
        workloads[prompt.id] = prompt.workload


# ---- the design, with every choice made ----


def _design(values: dict[str, Any], arms: Sequence[Arm], prompts: Sequence[Prompt]) -> tuple[Design, list[str]]:
    order = choose_order(values["interleave_by"], values["residency"], arms, prompts)
    rounds = values["rounds"]
    least = minimum_rounds(values["alpha"])
    notes = [] if order.note is None else [order.note]
    square = square_rounds(len(arms) + values["aa"]) if values["order"] == "williams" else 1
    if rounds is None:
        each = max(DEFAULT_ROUNDS, least)
        rounds = each * len(prompts) if order.interleave_by == "prompt" else each
        rounds = whole_squares(rounds, square=square, alpha=values["alpha"]) if square > 1 else rounds
    if square > 1:
        _refuse_broken_squares(values, rounds=rounds, square=square, least=least)
        notes.append(f"design.order=williams: {rounds // square} squares of {square} rounds")
    if rounds < least:
        raise InputError(
            f"design.rounds={rounds} cannot reach design.alpha={values['alpha']:g}: the exact test needs at least "
            f"{least} rounds; set design.rounds={least} or more"
        )
    if len(arms) * rounds > MOST_TRIALS:
        raise InputError(f"{len(arms)} arms in {rounds} rounds are more than {MOST_TRIALS:,} trials; sweep less")
    if order.interleave_by == "prompt" and rounds < len(prompts):
        left_out = len(prompts) - rounds
        notes.append(f"{rounds} rounds leave {left_out} of {len(prompts)} prompts out: one prompt per round")
    if len(arms) == 1:
        notes.append(f"one arm: nothing to compare it with{' but itself' if values['aa'] else ''}")
    made = {"rounds": rounds, "interleave_by": order.interleave_by, "residency": order.residency}
    return Design(**values | made | {"deadlines": Deadlines(**values["deadlines"])}), notes


def _refuse_broken_squares(values: Mapping[str, Any], *, rounds: int, square: int, least: int) -> None:
    """Refuse incomplete squares: arms are exchanged only over whole squares, so the exact test counts squares."""
    if values["stop"] == "early":
        raise InputError(
            "design.order=williams runs whole squares, so it cannot be stopped early: set design.stop=full or"
            " design.order=random"
        )
    if rounds % square or rounds < least * square:
        wanted = whole_squares(rounds, square=square, alpha=values["alpha"])
        raise InputError(
            f"design.rounds={rounds}: design.order=williams runs whole squares, here of {square} rounds, and the exact"
            f" test needs at least {least} squares at design.alpha={values['alpha']:g}; set design.rounds={wanted}"
        )


def _reaching_its_level(plan: Plan) -> Plan:
    """The plan with a note for each prompt class that has too few rounds for a verdict of its own."""
    least = minimum_rounds(plan.design.alpha)
    counts = rounds_by_class(plan)
    short = [f"class {name} gets {count} rounds" for name, count in counts.items() if count < least]
    if not short or len(counts) == 1:
        return plan
    rows = "its row" if len(short) == 1 else "their rows"
    note = f"{', '.join(short)}: {rows} will be underpowered, because a verdict needs {least}"
    return replace(plan, notes=(*plan.notes, note))


def _shadow_notes(parts: Parts) -> list[str]:
    return [f"{'/'.join(part)} is {parts.file(part)}, not the shipped one" for part in parts.shadowing()]


def _folder(config_dir: Path | None) -> tuple[str, ...]:
    """The option that names the user's own groups, without which the overrides mean something else."""
    return () if config_dir is None else ("--config-dir", str(config_dir))


def _redacted(line: str) -> str:
    """An override without the password that a database's address may hold."""
    return re.sub(r"://[^@/\s]*@", "://***@", line)
