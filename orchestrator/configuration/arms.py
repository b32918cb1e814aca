"""Arms from settings: every combination of what is swept, equal ones merged.

A setting below `engine` applies to the engines that have it. An engine without it ignores it, so several combinations
may come out equal; they are one arm, and a note says so.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conf import schema
from conf.store import setting_names
from orchestrator.configuration.checks import all_settings, engines_with, has_key
from orchestrator.configuration.engines import is_attached, is_simulated, unusable_engines
from orchestrator.configuration.environments import distinct_environments, environment_of
from orchestrator.configuration.groups import Part, Parts
from orchestrator.configuration.names import name_arms
from orchestrator.configuration.overrides import Setting, nearest, suggest
from orchestrator.configuration.sources import interpreter, usable
from orchestrator.environments.requirements import is_package
from orchestrator.errors import InputError
from orchestrator.plan import Arm, canonical_json

ARM_GROUPS = ("checkpoint", "engine", "sampling", "environment")
_NAMED_GROUPS = tuple(group for group in ARM_GROUPS if group != "environment")  # whose values are options' names only
MOST_ARMS = 10_000

Chosen = tuple[Setting, Any]  # a setting and the one of its values that a combination takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One point of the product, before equal ones are merged."""

    options: dict[str, str]  # by arm group
    settings: tuple[Chosen, ...]  # those below the groups


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """A combination's parts, resolved."""

    checkpoint: dict[str, Any]
    engine: dict[str, Any]
    sampling: dict[str, Any]
    environment: dict[str, Any]
    draft: str | None  # the drafting checkpoint's option
    ignored: tuple[str, ...]  # settings that the engine does not have


@dataclass(slots=True)
class _Merged:
    """The result of merging the combinations of one engine that ignored a setting."""

    keys: dict[str, None] = field(default_factory=dict)
    combinations: int = 0
    arms: set[str] = field(default_factory=set)

    def note(self, engine: str) -> str:
        verb = "does" if len(self.keys) == 1 else "do"
        merged = self.combinations > len(self.arms)
        outcome = f": {self.combinations} arms merged into {len(self.arms)}" if merged else ", which ignores it"
        return f"{', '.join(self.keys)} {verb} not apply to {engine}{outcome}"


def build_arms(
    products: Sequence[Sequence[Setting]], defaults: Mapping[str, str], parts: Parts
) -> tuple[tuple[Arm, ...], list[str]]:
    """The arms of all products, in order and named, and notes on what was merged or did not apply.

    Args:
        products: for each, the arm-level settings whose values are combined, the first varying slowest.
        defaults: the option of each group where no setting chooses one.

    Raises:
        InputError: an unknown option or key, a wrong value, a setting that no chosen engine has, no draft.
    """
    _load_mentioned(products, defaults, parts)
    combinations = [each for product in products for each in _combine(product, defaults, parts)]
    _check_engine_keys(combinations, parts)
    resolved = [_resolve(each, parts) for each in combinations]
    _check_mixture(combinations, parts)
    drafts = {values.draft for values in resolved if values.draft is not None}
    parts.load(("checkpoint", draft) for draft in sorted(drafts))
    arms, notes = _merge([_arm(values, parts) for values in resolved], resolved)
    return name_arms(distinct_environments(arms)), notes


def _load_mentioned(products: Sequence[Sequence[Setting]], defaults: Mapping[str, str], parts: Parts) -> None:
    mentioned: list[Part] = [(group, defaults[group]) for group in ARM_GROUPS]
    for setting in itertools.chain.from_iterable(products):
        if setting.key in ARM_GROUPS:
            mentioned += [(setting.key, _option(setting, value, parts)) for value in setting.values]
    parts.load([*mentioned, ("checkpoint", "simulated"), ("checkpoint", "served")])


def _option(setting: Setting, value: Any, parts: Parts) -> str:
    """The option that a setting of an arm's group names; packages are an environment of their own."""
    if setting.key == "environment" and not _is_option(value, parts):
        packages = value if isinstance(value, list) else [value]
        if isinstance(value, list) or (isinstance(value, str) and is_package(value)):
            return parts.define(("environment", _packages_key(value)), {"packages": [str(each) for each in packages]})
    return checked_option(setting, value, parts)


def _is_option(value: Any, parts: Parts) -> bool:
    return isinstance(value, str) and value in parts.options("environment")


def _packages_key(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def checked_option(setting: Setting, value: Any, parts: Parts) -> str:
    """The option that a setting of a whole group names.

    Raises:
        InputError: no option has this name.
    """
    options = parts.options(setting.key)
    option = value if isinstance(value, str) else str(value)
    if option not in options:
        if setting.key == "checkpoint" and parts.add_place(option, where=setting.where) is not None:
            return option
        if setting.key == "engine" and option in unusable_engines():
            raise InputError(f"{setting.where}: engine {option} cannot be used: {unusable_engines()[option]}")
        package = "; a package needs its version, as in mlx-lm==0.31.3" if setting.key == "environment" else ""
        raise InputError(f"{setting.where}: no {setting.key} is named {option!r}; {suggest(option, options)}{package}")
    return option


def _combine(product: Sequence[Setting], defaults: Mapping[str, str], parts: Parts) -> Iterator[Combination]:
    count = 1
    for setting in product:
        count *= len(setting.values)
    if count > MOST_ARMS:
        sizes = " x ".join(f"{len(setting.values)} ({setting.key})" for setting in product if setting.swept)
        raise InputError(f"{sizes} = {count} arms; at most {MOST_ARMS} fit one run: sweep less")
    for values in itertools.product(*(setting.values for setting in product)):
        pairs = list(zip(product, values, strict=True))
        chosen = {setting.key: _packages_key(value) for setting, value in pairs if setting.key == "environment"}
        chosen |= {setting.key: str(value) for setting, value in pairs if setting.key in _NAMED_GROUPS}
        options = {group: chosen.get(group, defaults[group]) for group in ARM_GROUPS}
        if "checkpoint" not in chosen:  # the default checkpoint's name would claim a model that never ran
            kind = parts.schema(("engine", options["engine"]))
            without = "simulated" if is_simulated(kind) else "served" if is_attached(kind) else None
            options["checkpoint"] = without or options["checkpoint"]
        settings = tuple(pair for pair in pairs if pair[0].key not in ARM_GROUPS)
        yield Combination(options=options, settings=settings)


def _check_engine_keys(combinations: Sequence[Combination], parts: Parts) -> None:
    """Require that at least one chosen engine has each setting below `engine`."""
    engines = {each.options["engine"]: parts.schema(("engine", each.options["engine"])) for each in combinations}
    settings = {setting.key: setting for each in combinations for setting, _ in each.settings}
    for setting in settings.values():
        group, _, key = setting.key.partition(".")
        if group != "engine" or any(has_key(engine, key) for engine in engines.values()):
            continue
        raise InputError(f"{setting.where}: no chosen engine has {setting.key}; {_instead(key, engines)}")


def _instead(key: str, engines: Mapping[str, type[Any]]) -> str:
    """The remedy for a key that no chosen engine has: the engines that have it, or the setting that was meant."""
    if having := engines_with(key):
        return _had_by(having)
    near = nearest(key, [name.removeprefix("engine.") for name in all_settings() if name.startswith("engine.")])
    hint = "" if near is None else f"did you mean {near}? "
    if near is not None and not any(has_key(engine, near) for engine in engines.values()):
        return hint + _had_by(engines_with(near))
    return hint + "; ".join(f"{name} has {', '.join(setting_names(engine))}" for name, engine in engines.items())


def _had_by(engines: Sequence[str]) -> str:
    return f"{', '.join(engines)} {'has' if len(engines) == 1 else 'have'} it: name one in engine="


def _check_mixture(combinations: Sequence[Combination], parts: Parts) -> None:
    """Refuse to mix simulated engines with real ones."""
    kinds = {each.options["engine"]: parts.schema(("engine", each.options["engine"])) for each in combinations}
    simulated = [name for name, kind in kinds.items() if is_simulated(kind)]
    real = [name for name in kinds if name not in simulated]
    if simulated and real:
        raise InputError(
            f"engine={','.join(kinds)}: {', '.join(simulated)} measures nothing and cannot share a run with "
            f"{', '.join(real)}; make two runs"
        )


def _resolve(combination: Combination, parts: Parts) -> _Values:
    engine_part = ("engine", combination.options["engine"])
    engine_schema = parts.schema(engine_part)
    by_group: dict[str, list[Chosen]] = {group: [] for group in ARM_GROUPS}
    ignored = []
    for setting, value in combination.settings:
        group, _, key = setting.key.partition(".")
        if group == "engine" and not has_key(engine_schema, key):
            ignored.append(setting.key)
        else:
            by_group[group].append((setting, value))
    values = {group: parts.values((group, combination.options[group]), by_group[group]) for group in ARM_GROUPS}
    part = ("checkpoint", combination.options["checkpoint"])
    draft = _draft(values["engine"], values["checkpoint"], engine_schema, parts)
    given = {setting.key: setting for setting, _ in by_group["checkpoint"] + by_group["engine"]}
    values["engine"] = interpreter(values["engine"], part=engine_part, parts=parts, given=given)
    environment_part = ("environment", combination.options["environment"])
    values["environment"] = environment_of(
        values["environment"],
        part=environment_part,
        parts=parts,
        given=by_group["environment"],
        engine=values["engine"],
    )
    values["checkpoint"] = usable(values["checkpoint"], part=part, parts=parts, given=given, engine=engine_schema)
    return _Values(**values, draft=draft, ignored=tuple(ignored))


def _draft(engine: dict[str, Any], checkpoint: dict[str, Any], kind: type[Any], parts: Parts) -> str | None:
    """The option of the drafting checkpoint: the engine's `draft`, else the checkpoint's own; written into both.

    Equal arms are equal then, however the draft was named; and what a checkpoint proposes is no part of an arm that
    drafts nothing.
    """
    proposed, checkpoint["draft"] = checkpoint["draft"], None
    if "draft" not in engine:
        return None
    speculates = not is_simulated(kind) or engine["acceptance"] is not None
    draft: str | None = engine["draft"] or (proposed if speculates else None)
    if draft is None and not is_simulated(kind):
        raise InputError(
            f"engine {engine['name']} needs a draft and checkpoint {checkpoint['name']} names none; "
            f"set engine.draft to a checkpoint: {', '.join(parts.options('checkpoint'))}"
        )
    source = "engine.draft" if engine["draft"] else f"draft of checkpoint {checkpoint['name']}"
    known = draft is None or draft in parts.options("checkpoint")
    if draft is not None and not known and parts.add_place(draft, where=f"{source}={draft}") is None:
        raise InputError(f"{source}={draft}: no such checkpoint; {suggest(draft, parts.options('checkpoint'))}")
    engine["draft"] = draft
    return draft


def _arm(values: _Values, parts: Parts) -> Arm:
    draft = None
    if values.draft is not None:
        part = ("checkpoint", values.draft)
        draft = usable(
            parts.values(part) | {"draft": None}, part=part, parts=parts, given={}, engine=schema.EngineConfig
        )
    return Arm(
        name="",
        checkpoint=values.checkpoint,
        engine=values.engine,
        sampling=values.sampling,
        draft=draft,
        environment=values.environment or None,
    )


def _merge(arms: Sequence[Arm], resolved: Sequence[_Values]) -> tuple[list[Arm], list[str]]:
    """Merge equal arms into one, at the place of the first."""
    distinct: dict[str, Arm] = {}
    merged: dict[str, _Merged] = {}
    repeated = 0
    for arm, values in zip(arms, resolved, strict=True):
        key = canonical_json([arm.checkpoint, arm.engine, arm.sampling, arm.draft, arm.environment])
        repeated += key in distinct and not values.ignored
        distinct.setdefault(key, arm)
        if values.ignored:
            entry = merged.setdefault(values.engine["name"], _Merged())
            entry.keys |= dict.fromkeys(values.ignored)
            entry.combinations += 1
            entry.arms.add(key)
    notes = [entry.note(engine) for engine, entry in merged.items()]
    if repeated:
        notes.append(f"{repeated} of {len(arms)} arms equal another and were merged into it")
    return list(distinct.values()), notes
