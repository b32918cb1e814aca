"""The checks before the first round: the machine is fit to start, and each arm runs.

At the start leftovers of earlier runs are ended, and battery power is refused if mains power is wanted. Then each arm
answers a few tokens: it has to run, show its evidence and begin each conversation afresh. A failed preflight ends the
command with the exit code of the fault's kind, from one table:

    the plan's       exit code 2   only another plan helps: a setting, a checkpoint or a draft has to be changed
    the machine's    exit code 4   the same plan may run later, or once a package, a server or the machine is mended

A fault has the same code before the worker starts, while it loads and at its first answer, in process and at a server.
A test compares the table with the existing kinds.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from db.escaping import shown_line
from orchestrator.errors import InputError, RefusedError
from orchestrator.plan import Arm, Gate, Plan
from orchestrator.planning.residency import is_simulated
from orchestrator.running.crew import Crew, Member
from orchestrator.running.leftovers import clear_leftovers, journal_beside
from orchestrator.running.trial import from_cache, judge
from workers.errors import FaultKind, WorkerFault
from workers.files.private import tighten
from workers.machine.telemetry import Reading, read_machine
from workers.protocol import Generate

_OURS = ("logs/*", "nights/*.md", "*.backup.db")
# The name holds a run's id, or the time of a night or a backup: a folder called `logs` may hold the user's files too.
_GIVEN_NAME = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d{4}Z(-\d+)?\.md|.+-\d{8}-\d{6}\.backup\.db"
)
PREFLIGHT_TOKENS = 8


# ---- the machine ----


def check_machine(plan: Plan, database: Path) -> None:
    """Make this machine ready for a run: end leftovers of earlier runs, refuse obstacles.

    Raises:
        RefusedError: a process that may be a leftover, or a battery.
    """
    measured = not all(is_simulated(arm) for arm in plan.arms)
    gate = plan.gate if measured else replace(plan.gate, orphans="report", power_source="any")
    tighten_beside(database)
    clear_leftovers(journal_beside(database), gate, warn)
    readings = read_machine()
    refuse_battery(gate, readings)
    if measured:
        for note in start_notes(readings):
            warn(note)


def warn(text: str) -> None:
    """Print one line on the error stream."""
    sys.stderr.write(f"interlace: {shown_line(text)}\n")


def refuse_battery(gate: Gate, readings: Sequence[Reading]) -> None:
    """Refuse to start a run that wants mains power on a battery. An unreadable power source passes.

    Raises:
        RefusedError: the machine runs on a battery; the message has the remedy.
    """
    source = next((each.value_text for each in readings if each.field == "power_source"), None)
    if gate.power_source == "mains" and source not in (None, "mains"):
        raise RefusedError(f"power comes from {source}: plug in, or set gate.power_source=any")


def start_notes(readings: Sequence[Reading]) -> Iterator[str]:
    """Yield the conditions that slow a run or may end it, with the remedy; none of them prevents the run.

    zsh starts background jobs at nice +5, and macOS then serves their GPU work late. With a closed lid a MacBook sleeps
    whatever caffeinate asserts, unless a display and mains power are connected.
    """
    by_field = {each.field: each for each in readings}
    if (nice := by_field.get("nice")) is not None and nice.value is not None and nice.value > 0:
        yield (
            f"this process runs at nice {nice.value:+g}, so others are served first: start it in the foreground,"
            " or in zsh after `unsetopt BG_NICE`"
        )
    if (lid := by_field.get("lid")) is not None and lid.value_text == "closed":
        yield "the lid is closed: this Mac may sleep during the run; open it, or connect a display and mains power"


def tighten_beside(database: Path) -> None:
    """Remove other users' rights from files that earlier versions left readable beside the database: only files that
    carry a name given by interlace and belong to this user."""
    for pattern in _OURS:
        for path in database.parent.glob(pattern):
            if _GIVEN_NAME.fullmatch(path.name):
                tighten(path)


# ---- the arms ----


def try_arm(plan: Plan, arm: Arm, crew: Crew, *, on_load: Callable[[Member], None]) -> str | None:
    """Run an arm for a few tokens. Return its problem in one line, or None if it runs and shows its evidence.

    Args:
        on_load: called with the arm's worker when it has to be loaded for this.
    """
    first = plan.prompts[0]
    request = Generate(
        request_id=f"preflight/{arm.name}",
        turns=[[dict(message) for message in first.turns[0]]],
        max_tokens=min(PREFLIGHT_TOKENS, first.max_tokens),
        seed=plan.design.seed,
        prompt_class=first.prompt_class,
    )
    share_max = plan.design.cached_share_max
    try:
        member = crew.member(arm, on_load=on_load)
        generations = list(member.generate(request))
        # A server may keep the prompt for the next round: the second request shows it now.
        again = share_max is not None and any(generation.stamps_of == "chunk" for generation in generations)
        answers = [*generations, *(member.generate(request) if again else ())]
    except WorkerFault as fault:
        crew.discard(arm)
        return f"{fault.kind}: {fault}"
    if crew.swap and (words := crew.discard(arm)) is not None:  # a swapped arm has to make room after every trial
        return f"{FaultKind.teardown_hang}: {words}"
    unasked = from_cache([(first, answer) for answer in answers], share_max=share_max)
    if plan.design.evidence == "record":
        return unasked
    return next((why for generation in generations if (why := judge(generation.evidence).fault)), unasked)


OF_THE_PLAN = frozenset(
    {
        FaultKind.cache_not_trimmable,
        FaultKind.checkpoint_corrupt,
        FaultKind.draft_mismatch,
        FaultKind.tokenizer_mismatch,
        FaultKind.unsupported_setting,
        "cached_prompt",  # `orchestrator.running.trial`
        # From the evidence, see `orchestrator.running.trial`: the mechanism that the plan asks for does not run.
        "engagement_unknown",
        "evidence_broken",
        "not_engaged",
        "unrequested_mechanism",
    }
)
OF_THE_MACHINE = frozenset(
    {
        FaultKind.checkpoint_missing,  # at this point the checkpoint could not be fetched
        FaultKind.crashed,
        FaultKind.disk_full,
        FaultKind.exited_without_record,
        FaultKind.garbage,
        FaultKind.generation_failed,  # a server that does not answer, among others
        FaultKind.gpu_interactivity,
        FaultKind.gpu_submissions_ignored,
        FaultKind.gpu_timeout,
        FaultKind.hung_first_token,
        FaultKind.hung_inter_token,
        FaultKind.hung_load,
        FaultKind.impossible_count,  # reported by a server
        FaultKind.load_failed,  # a package or a server does not start, for an unknown reason
        FaultKind.log_flood,
        FaultKind.out_of_memory,
        FaultKind.package_missing,
        FaultKind.probe_failed,
        FaultKind.teardown_hang,
        FaultKind.too_long,
        FaultKind.zero_tokens,
    }
)


def refusal(kind: str, message: str) -> InputError | RefusedError:
    """Return the error with which a fault of this kind ends a command; an unknown kind counts as the machine's."""
    return InputError(message) if kind in OF_THE_PLAN else RefusedError(message)
