"""The environments that a plan's arms name: looked up without changing anything, or resolved and built."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import packages_distributions
from typing import Any

from orchestrator.environments import store
from orchestrator.environments.baseline import Baseline, current
from orchestrator.environments.resolve import Request, free_names, request_of, resolve
from orchestrator.environments.tools import Tool, tool
from orchestrator.errors import RefusedError
from orchestrator.plan import Arm, Lock, Plan
from workers.engines.base import Engine

Tell = Callable[[str], None]


def looked_up(plan: Plan) -> Plan:
    """The plan with the locks that are known. Resolves, fetches and builds nothing.

    Raises:
        InputError: a package that is named does not exist here, or is no package.
    """
    return _locked(plan, lambda request: _with_name(store.known_lock(request), request))


def made(plan: Plan, tell: Tell) -> Plan:
    """The plan with all its locks, and every environment built.

    Args:
        tell: called with lines for a person: what is resolved and built, and what had to move.

    Raises:
        InputError: packages that cannot be had together. RefusedError: no network, a full disk, a failed build.
    """
    if not _environments(plan):
        return plan
    chosen, here = tool(), current()

    def lock(request: Request) -> Lock:
        known = _with_name(store.known_lock(request), request) if request.exact else None
        if known is not None and _is_current(known):
            return known
        tell(f"environment {request.name}: resolving with {chosen.name}")
        found = resolve(request, chosen)
        store.keep_lock(request, found)
        if request.newest and _is_installed(found, here):
            tell(f"environment {request.name}: its engine's packages are those of this environment already")
        return found

    locked = _locked(plan, lock)
    ready(locked, tell)
    return locked


def ready(plan: Plan, tell: Tell) -> dict[str, str]:
    """Build what is missing of a plan's locked environments; the interpreter of each arm that has one.

    Raises:
        InputError, RefusedError: see `store.build`; or an arm's environment has no lock.
    """
    for arm in plan.arms:
        if arm.environment is not None and plan.lock_of(arm) is None:
            raise RefusedError(f"arm {arm.name}: its environment has no lock in this plan; plan the run anew")
    if not plan.locks:
        return {}
    pythons = {lock.environment: _built(lock, tool(), tell) for lock in plan.locks}
    return {arm.name: pythons[lock.environment] for arm in plan.arms if (lock := plan.lock_of(arm)) is not None}


def recorded_packages(plan: Plan) -> tuple[str, ...]:
    """The distributions whose versions every arm records, so that arms of different environments can be compared."""
    return tuple(dict.fromkeys(package.name for lock in plan.locks for package in lock.packages))


def states(plan: Plan) -> Iterator[tuple[str, str]]:
    """(environment, words) for each that the plan names: whether it is built, and what moved with it."""
    for name in _environments(plan):
        lock = next((each for each in plan.locks if each.environment == name), None)
        if lock is None:
            yield name, "not resolved yet: `interlace run` resolves and builds it"
            continue
        state = "built" if store.find(lock) is not None else "not built yet"
        moved = f"; moved along: {', '.join(lock.moved)}" if lock.moved else ""
        yield name, f"{len(lock.packages)} packages, Python {lock.python}, {state}{moved}"


def _built(lock: Lock, chosen: Tool, tell: Tell) -> str:
    found = store.find(lock)
    if found is None:
        tell(f"environment {lock.environment}: building, {len(lock.packages)} packages")
        found = store.build(lock, chosen)
        size = store.size_of(found)
        shared = size.total_bytes - size.own_bytes
        tell(
            f"environment {lock.environment}: built, {size.total_bytes / 1e6:,.0f} MB,"
            f" {shared / 1e6:,.0f} MB of it shared by hard links"
        )
        if lock.moved:
            tell(f"environment {lock.environment}: moved along: {', '.join(lock.moved)}")
    return str(found.python)


def _is_installed(lock: Lock, here: Baseline) -> bool:
    """Return whether the packages that it names have the versions that are installed here."""
    return all(here.versions.get(package.name) == package.version for package in lock.packages if package.named)


def _is_current(lock: Lock) -> bool:
    """Return whether a lock's sources on this machine still have the content that was locked."""
    return all(package.source is None or not package.source.startswith("/") for package in lock.packages)


def _with_name(lock: Lock | None, request: Request) -> Lock | None:
    return None if lock is None else replace(lock, environment=request.name)


def _locked(plan: Plan, lock_of: Callable[[Request], Lock | None]) -> Plan:
    """The plan with a lock for each environment.

    Each keeps this environment's versions; what an earlier one had to move besides, the later ones take over where they
    can, so that the environments equal each other too.
    """
    environments = _environments(plan)
    if not environments:
        return plan
    here, moved, locks = current(), dict[str, str](), []
    for environment in environments.values():
        request = request_of(environment, needed=_needed(plan, environment["name"]), here=here, keep=moved)
        lock = lock_of(request)
        if lock is not None:
            locks.append(lock)
            moved = _moved(lock, request, here) | moved
    return replace(plan, locks=tuple(locks))


def _moved(lock: Lock, request: Request, here: Baseline) -> dict[str, str]:
    free = free_names(request)
    return {
        package.name: package.version
        for package in lock.packages
        if package.version is not None
        and package.name not in free
        and here.versions.get(package.name, package.version) != package.version
    }


def _environments(plan: Plan) -> Mapping[str, Mapping[str, Any]]:
    return {arm.environment["name"]: arm.environment for arm in plan.arms if arm.environment is not None}


def _needed(plan: Plan, environment: str) -> Sequence[str]:
    arms = [arm for arm in plan.arms if arm.environment is not None and arm.environment["name"] == environment]
    return [name for arm in arms for name in engine_packages(arm)]


def engine_packages(arm: Arm) -> tuple[str, ...]:
    """The distributions that run an arm's model."""
    module, _, attribute = str(arm.engine["_target_"]).rpartition(".")
    engine = getattr(import_module(module), attribute)
    if not issubclass(engine, Engine):
        return ()
    bringing = () if module.startswith("workers.") else packages_distributions().get(module.partition(".")[0], ())
    return (*engine.packages(arm.engine), *bringing)
