"""Configuration parts: one option of one group, composed by Hydra, checked against its schema, as plain values.

A plan may hold a thousand arms made of a handful of parts. So each part is composed once, all that are wanted in one
call, and values are set on copies of it.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]  # omegaconf's reader; no types without an extra package

import conf
from conf.store import GROUP_SCHEMAS, PLAN_GROUPS, register
from orchestrator.configuration.checks import (
    all_problems,
    check_sweep,
    engines_with,
    first_line,
    omegaconf_error,
    set_value,
)
from orchestrator.configuration.engines import engine_kinds, kind_by_target, register_engines, without_file
from orchestrator.configuration.overrides import COMMAND_LINE, Setting, suggest
from orchestrator.configuration.places import place_of
from orchestrator.configuration.references import ALLOWED, references_kept, register_resolvers
from orchestrator.errors import InputError

SHIPPED_DIR = Path(conf.__file__).parent

Part = tuple[str, str]  # group, option


class Parts:
    """The options of every group, the shipped ones and those of the user's folder, which win over shipped ones.

    Raises:
        InputError: the path is not a folder, or contains no group.
    """

    def __init__(self, config_dir: Path | None = None) -> None:
        self._dirs = [SHIPPED_DIR] if config_dir is None else [_checked(config_dir), SHIPPED_DIR]
        self._nodes: dict[Part, DictConfig] = {}
        self._schemas: dict[Part, type[Any]] = {}
        self._scratch: dict[tuple[Part, tuple[str, ...]], DictConfig] = {}
        self._plain: dict[tuple[Part, str], dict[str, Any]] = {}
        self._options: dict[str, list[str]] = {}
        register()
        register_engines()

    def options(self, group: str) -> list[str]:
        """The names that `group=` takes."""
        if group not in GROUP_SCHEMAS:
            return []
        if group not in self._options:
            found = {name for folder in self._dirs for name in _options_in(folder / group)}
            brought = without_file(engine_kinds().values()) if group == "engine" else ()
            self._options[group] = sorted({*found, *brought})
        return self._options[group]

    def define(self, part: Part, values: Mapping[str, Any]) -> str:
        """Add an option that has no file, as the override line describes it; returns its name.

        Raises:
            InputError: see `load`.
        """
        if part not in self._nodes:
            self._nodes[part] = self._typed(part, OmegaConf.create(dict(values)))
        return part[1]

    def add_place(self, text: str, *, where: str) -> str | None:
        """Make an option of a checkpoint that is named by its place; return the option's name, or None if it is none.

        Args:
            where: the override, for messages.

        Raises:
            InputError: see `place_of`.
        """
        part = ("checkpoint", text)
        if part in self._nodes:
            return text
        found = place_of(text, where=where)
        return None if found is None else self.define(part, found)

    def file(self, part: Part) -> Path:
        """The YAML file of an option that exists; of an engine that a package brings, where that is declared."""
        files = self._files(part)
        if files or part[0] != "engine":
            return files[0] if files else Path(f"{part[0]}={part[1]}")
        return Path(f"entry point {part[1]} of {engine_kinds()[part[1]].package}")

    def folder_of(self, part: Part) -> Path | None:
        """The configuration folder in which an option's file lies; None: it has no file."""
        return next(
            (folder for folder in self._dirs if self._files(part) and self.file(part).is_relative_to(folder)), None
        )

    def _files(self, part: Part) -> list[Path]:
        files = (folder / part[0] / f"{part[1]}.yaml" for folder in self._dirs)
        return [file for file in files if file.is_file()]

    def shadowing(self) -> list[Part]:
        """The loaded options of the user's folder that stand in front of a shipped one."""
        return [part for part in self._nodes if len(self._files(part)) > 1]

    def absolute(self, path: str, *, part: Part, setting: Setting | None) -> Path:
        """A path as the plan holds it.

        On the command line a relative path starts at the working directory; in YAML, at the configuration folder that
        the YAML is in (the one with the groups), else at the other one.
        """
        given = Path(path).expanduser()
        if given.is_absolute() or (setting is not None and setting.origin == COMMAND_LINE):
            return given.absolute()
        folders = sorted(self._dirs, key=lambda folder: not self.file(part).is_relative_to(folder))
        return next((folder / given for folder in folders if (folder / given).exists()), folders[0] / given)

    def root(self) -> tuple[dict[str, str], dict[str, Any]]:
        """The options chosen by default, by group, and the values of the root's own keys."""
        config = self._compose("interlace_root", [])
        choices = {group: option for group, option in config.hydra.runtime.choices.items() if group in GROUP_SCHEMAS}
        choices.setdefault("environment", "current")  # a user's own config.yaml may be older than the group
        if absent := [group for group in PLAN_GROUPS if group not in choices and group != "sweep"]:
            raise InputError(f"{self._dirs[0] / 'config.yaml'}: its defaults list lacks {', '.join(absent)}")
        return choices, {key: config.get(key) for key in ("control", "experiment")}

    def load(self, wanted: Iterable[Part]) -> None:
        """Compose these parts, all in one go.

        Raises:
            InputError: broken YAML, an unknown key, a value of the wrong type.
        """
        new = [part for part in dict.fromkeys(wanted) if part not in self._nodes]
        if not new:
            return
        lines = [f"+{group}@part{number}={option}" for number, (group, option) in enumerate(new)]
        config = self._compose("interlace_parts", lines)
        for number, part in enumerate(new):
            self._nodes[part] = self._typed(part, config[f"part{number}"])

    def schema(self, part: Part) -> type[Any]:
        """The dataclass that checks a loaded part."""
        return self._schemas[part]

    def values(self, part: Part, settings: Iterable[tuple[Setting, Any]] = ()) -> dict[str, Any]:
        """A loaded part with these settings, as plain JSON values, complete and within its limits.

        Args:
            settings: each a setting below the part's group, and the one of its values to take.

        Raises:
            InputError: an unknown key, a wrong type, a missing or impossible value.
        """
        chosen = list(settings)
        key = (part, repr([(setting.key, value) for setting, value in chosen]))
        if key not in self._plain:
            self._plain[key] = self._resolved(part, chosen)
        return copy.copy(self._plain[key])

    def _resolved(self, part: Part, chosen: list[tuple[Setting, Any]]) -> dict[str, Any]:
        tree = self._copy(part, chosen)
        for setting, value in chosen:
            set_value(tree, self.schema(part), setting, value)
        try:
            plain = OmegaConf.to_container(tree, resolve=True, enum_to_str=True)
        except OmegaConfBaseException as error:
            raise self._unresolved(part, chosen, error) from error
        assert isinstance(plain, dict)
        values: dict[str, Any] = references_kept(plain, "")[part[0]]
        self._check(part, values, chosen)
        return values

    def _unresolved(self, part: Part, chosen: list[tuple[Setting, Any]], error: OmegaConfBaseException) -> InputError:
        """Return the error for an interpolation that has no value, with its place and the cause."""
        key = str(error.full_key or part[0])
        given = [setting.where for setting, _ in chosen if f"{key}.".startswith(f"{setting.key}.")]
        where = f"{given[0] if given else self.file(part)}: {key}"
        said = re.sub(r"^\w+ raised while resolving interpolation: ", "", first_line(error))
        if first_line(error).startswith(InputError.__name__):
            return InputError(f"{where}: {said}")
        allowed = f"allowed are {', '.join(ALLOWED)}, and a reference points within its own group only"
        return InputError(f"{where}: {said}; {allowed}")

    def _copy(self, part: Part, chosen: list[tuple[Setting, Any]]) -> DictConfig:
        """A tree to set these keys on. One that had the same keys set serves again, for copying is what costs.

        This does not hold if a value is a mapping: it is merged into the tree, with an earlier arm's keys in it.
        """
        if any(isinstance(value, Mapping) for _, value in chosen):
            return copy.deepcopy(self._nodes[part])
        key = (part, tuple(setting.key for setting, _ in chosen))
        if key not in self._scratch:
            self._scratch[key] = copy.deepcopy(self._nodes[part])
        return self._scratch[key]

    def _check(self, part: Part, values: dict[str, Any], chosen: list[tuple[Setting, Any]]) -> None:
        group = part[0]
        for key, problem in all_problems(self.schema(part), values):
            dotted = f"{group}.{key}"
            given = [setting.where for setting, _ in chosen if f"{dotted}.".startswith(f"{setting.key}.")]
            raise InputError(f"{given[0] if given else self.file(part)}: {dotted} {problem}")

    def _typed(self, part: Part, node: DictConfig | ListConfig) -> DictConfig:
        """The part under its schema, whether or not its file names one, in a tree {group: part}."""
        group, option = part
        if not isinstance(node, DictConfig):
            raise InputError(f"{self.file(part)}: holds a list; write one `key: value` per line")
        if group == "sweep":
            check_sweep(str(self.file(part)), node)
        schema = self._engine_schema(part, node) if group == "engine" else GROUP_SCHEMAS[group]
        try:
            tree = OmegaConf.create({group: OmegaConf.merge(OmegaConf.structured(schema), node)})
        except OmegaConfBaseException as error:
            key = str(error.full_key or error.key)
            raise omegaconf_error(str(self.file(part)), group, schema, key, error) from error
        if OmegaConf.is_missing(tree[group], "name") or tree[group].get("name") == "":
            tree[group].name = option
        OmegaConf.set_struct(tree, True)
        self._schemas[part] = schema
        return tree

    def _engine_schema(self, part: Part, node: DictConfig) -> type[Any]:
        """The schema that goes with the engine's class, which has to be one of ours: a worker will import it."""
        target = None if OmegaConf.is_missing(node, "_target_") else node.get("_target_")
        if target is None:
            settings = (str(key) for key in node if key != "_target_")
            base = next(iter(engines_with(*settings)), "mlx_lm")
            remedy = f"begin with `defaults: [{base}, _self_]` (the engine it changes), or name `_target_`"
            raise InputError(f"{self.file(part)}: {remedy}")
        kind = kind_by_target(str(target))
        if kind is None:
            known = [each.target for each in engine_kinds().values()]
            raise InputError(f"{self.file(part)}: `_target_: {target}` is not an engine; {suggest(str(target), known)}")
        return kind.schema

    def _compose(self, entry: str, lines: list[str]) -> DictConfig:
        search = [f"file://{folder}" for folder in self._dirs[1:]]
        if search:
            lines = [f"hydra.searchpath={search}", *lines]
        try:
            with initialize_config_dir(str(self._dirs[0]), version_base="1.3", job_name="interlace"):
                composed = compose(entry, lines, return_hydra_config=entry == "interlace_root")
                register_resolvers()
                return composed
        except YAMLError as error:
            raise InputError(" ".join(str(error).split())) from error
        except UnicodeDecodeError as error:
            raise InputError(f"{self._holding(error.object)}: not UTF-8; save the file as UTF-8") from error
        except HydraException as error:
            raise self._composition_error(error) from error

    def _holding(self, content: bytes) -> Path:
        """Find the YAML file that was being read, which the error does not name."""
        patterns = ["*.yaml", *(f"{group}/**/*.yaml" for group in GROUP_SCHEMAS)]
        files = (file for folder in self._dirs for pattern in patterns for file in folder.glob(pattern))
        return next((file for file in files if file.is_file() and content in file.read_bytes()), self._dirs[0])

    def _composition_error(self, error: HydraException) -> InputError:
        """Hydra's several lines as one: which file, which key, what is valid."""
        named = re.search(r"In '([^']+)'", str(error))
        where = named.group(1) if named else "configuration"
        group, _, option = where.partition("/")
        if option in self.options(group):
            where = str(self.file((group, option)))
            if group == "sweep" and isinstance(node := OmegaConf.load(where), DictConfig):
                check_sweep(where, node)
        cause = error.__context__  # Hydra raises its own error while it handles omegaconf's
        if not isinstance(cause, OmegaConfBaseException) or group not in GROUP_SCHEMAS:
            return InputError(f"{where}: {first_line(error)}")
        schema = cause.object_type if group == "engine" and is_dataclass(cause.object_type) else GROUP_SCHEMAS[group]
        key = re.sub(r"^part\d+\.", "", str(cause.full_key or cause.key))
        return omegaconf_error(where, group, schema, key, cause)


def _checked(folder: Path) -> Path:
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise InputError(f"--config-dir {folder}: no such folder")
    if not any((folder / group).is_dir() for group in GROUP_SCHEMAS):
        raise InputError(f"--config-dir {folder}: holds no group; make a folder in it named {', '.join(GROUP_SCHEMAS)}")
    return folder


def _options_in(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.yaml"):
        yield path.relative_to(folder).with_suffix("").as_posix()
