"""Fetching the weights that a plan's arms need from the hub, before anything is loaded.

A plan holds the commit of each hub checkpoint that is on this machine (`pinned`), so that a run which goes on, or is
repeated, uses the weights that it began with. What is here completely is used as it is, without asking the hub;
`interlace checkpoint fetch` brings a newer commit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Arm, Plan
from orchestrator.planning import hub_sizes
from orchestrator.planning.residency import is_attached, is_simulated, model_size

if TYPE_CHECKING:
    from workers.weights.hub import Snapshot
    from workers.weights.hub_download import Progress

Key = tuple[str, str | None]  # of a hub checkpoint: its id and revision


def quiet(progress: "Progress") -> None:
    """Report nothing."""


def to_fetch(plan: Plan) -> list[dict[str, Any]]:
    """The hub checkpoints of a plan that are not completely on this machine, each once."""
    return [each for each in _hub_checkpoints(plan.arms) if _commit_here(each) is None]


def learn_sizes(arms: Sequence[Arm]) -> None:
    """Ask the hub, for a few seconds, about the models that are not here and whose sizes are not published."""
    absent = [each for each in _hub_checkpoints(arms) if _commit_here(each) is None]
    hub_sizes.ask(each for each in absent if model_size(each).weights_bytes is None)


def download_sizes(plan: Plan) -> dict[str, int | None]:
    """The bytes that a run would fetch first, by checkpoint; None: unknown; see `learn_sizes`."""
    return {str(each["name"]): _download_bytes(each) for each in to_fetch(plan)}


def _download_bytes(checkpoint: Mapping[str, Any]) -> int | None:
    stated = hub_sizes.stated(checkpoint)
    return model_size(checkpoint).weights_bytes if stated is None else stated.missing_bytes


def fetch_weights(
    plan: Plan, *, tell: Callable[["Progress"], None] = quiet, should_stop: Callable[[], bool] = lambda: False
) -> bool:
    """Fetch what is missing of a plan's weights; return whether anything was.

    Args:
        tell: called about four times per second while files come.
        should_stop: asked as often; true ends the fetch.

    Raises:
        InputError: a checkpoint does not exist, is private or gated, or is not a checkpoint.
        RefusedError: it cannot be fetched now: no network, no room, a busy or silent hub, or asked to stop.
    """
    wanted = to_fetch(plan)
    if not wanted:
        return False
    fetch_all(survey_all(wanted), tell=tell, should_stop=should_stop)
    return True


def survey_all(checkpoints: Sequence[Mapping[str, Any]]) -> list["Snapshot"]:
    """List what the hub holds of these checkpoints.

    Raises:
        InputError, RefusedError: see `fetch_weights`.
    """
    from workers.weights.hub import survey

    found = []
    for each in checkpoints:
        with _command_errors(each):
            found.append(survey(each["hub_id"], each.get("revision")))
    return found


def fetch_all(
    snapshots: Sequence["Snapshot"],
    *,
    tell: Callable[["Progress"], None] = quiet,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Fetch what is missing of these snapshots, after a look at the room for all of them.

    Raises:
        InputError, RefusedError: see `fetch_weights`.
    """
    from workers.weights.hub import require_room
    from workers.weights.hub_download import fetch

    with _command_errors({}):
        require_room(snapshots)
        for snapshot in snapshots:
            fetch(snapshot, tell=tell, should_stop=should_stop)


def pinned(arms: Sequence[Arm], commits: Mapping[Key, str] | None = None) -> tuple[Arm, ...]:
    """The arms with the commit of each hub checkpoint as its revision, where it is known.

    Args:
        commits: of checkpoints that are not on this machine, by id and revision.
    """
    known = dict(commits or {})

    def commit(checkpoint: Mapping[str, Any]) -> str | None:
        key = _key(checkpoint)
        if key not in known and (found := _commit_here(checkpoint)) is not None:
            known[key] = found
        return known.get(key)

    def pin(checkpoint: dict[str, Any] | None) -> dict[str, Any] | None:
        if checkpoint is None or checkpoint.get("source") != "hub" or (found := commit(checkpoint)) is None:
            return checkpoint
        return checkpoint | {"revision": found}

    return tuple(
        arm if not _loads(arm) else replace(arm, checkpoint=pin(arm.checkpoint) or {}, draft=pin(arm.draft))
        for arm in arms
    )


def pinned_by_hub(plan: Plan) -> Plan:
    """The plan with the commits that the hub holds now, for weights that are to be fetched later.

    Raises:
        InputError, RefusedError: see `fetch_weights`.
    """
    wanted = to_fetch(plan)
    commits = {_key(each): snapshot.commit for each, snapshot in zip(wanted, survey_all(wanted), strict=True)}
    return replace(plan, arms=pinned(plan.arms, commits))


def _hub_checkpoints(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    found: dict[Key, dict[str, Any]] = {}
    for arm in arms:
        for checkpoint in (arm.checkpoint, arm.draft):
            if _loads(arm) and checkpoint is not None and checkpoint.get("source") == "hub":
                found.setdefault(_key(checkpoint), checkpoint)
    return list(found.values())


def _loads(arm: Arm) -> bool:
    """Return whether the arm loads weights on this machine: a server that runs already holds its own."""
    return not is_simulated(arm) and not is_attached(arm)


def _key(checkpoint: Mapping[str, Any]) -> Key:
    return checkpoint["hub_id"], checkpoint.get("revision")


def _commit_here(checkpoint: Mapping[str, Any]) -> str | None:
    from workers.weights.hub import commit_here

    return commit_here(checkpoint)


@contextmanager
def _command_errors(checkpoint: Mapping[str, Any]) -> Iterator[None]:
    """Turn the hub's refusals into a command's errors."""
    from workers.weights.hub_errors import FetchStopped, HubError

    named = checkpoint.get("name", checkpoint.get("hub_id"))
    name = "" if named == checkpoint.get("hub_id") else f"checkpoint {named}: "
    try:
        yield
    except HubError as error:
        raise (InputError if error.lasting else RefusedError)(f"{name}{error}") from error
    except FetchStopped as error:
        raise RefusedError("stopped as asked while weights were fetched; what has come stays") from error
