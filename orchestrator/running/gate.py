"""Conditions that must hold before a trial starts. Clock, sleep and readings are passed in, so that tests do not wait.

Conditions look at recent readings: a level must have held for a while, a load is a mean over a window. A condition
without readings holds, so a quiet machine passes at once. Four kinds differ in how long they are waited for:

    heat    thermal level, canary       until `timeout_s`, before every trial: waiting cools
    power   mains, power mode           until `timeout_s`
    busy    other CPU and GPU use,      until `busy_timeout_s`, and all of them together no longer than `busy_budget_s`
            memory pressure, swap       in the whole run: on a shared machine they may never hold
    orphan  a possible leftover         until `timeout_s`, once in the whole run: it may be there to stay
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.plan import Gate
from workers.machine.samples import Sample

POLL_S = 1.0
HEAT, POWER, BUSY, ORPHAN = "heat", "power", "busy", "orphan"

# Used if `busy_timeout_s` and `busy_budget_s` are null. A Mac has one user: other load ends. Elsewhere it may not.
_BUSY_TIMEOUT_S = {"darwin": 420.0}
_BUSY_BUDGET_S = {"darwin": 3600.0}
_BUSY_TIMEOUT_ELSEWHERE_S, _BUSY_BUDGET_ELSEWHERE_S = 5.0, 20.0

_US_PER_S = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One condition at one moment."""

    name: str
    kind: str  # heat | power | busy | orphan
    problem: str | None = None  # what was read and what is wanted; None: it holds, or cannot be read
    unreadable: str | None = None  # why it cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """How a trial got through the gate."""

    waited_s: float = 0.0
    hot_start: str | None = None  # the conditions that did not hold when the time was up; None: all held
    hot_kinds: tuple[str, ...] = ()  # of the conditions that did not hold
    skipped: bool = False  # the trial must not run
    waited_for: Mapping[str, float] = field(default_factory=dict)  # seconds, by condition
    unreadable: Mapping[str, str] = field(default_factory=dict)  # reason, by condition

    @property
    def state(self) -> str:
        """Return open, waited, hot_start or skipped."""
        if self.skipped:
            return "skipped"
        if self.hot_start is not None:
            return "hot_start"
        return "waited" if self.waited_for else "open"


OPEN = Passage()


@dataclass(slots=True, kw_only=True)
class Gatekeeper:
    """Delays trials until the gate's conditions hold or their time is up. One per run: it keeps the run's budget."""

    gate: Gate
    samples: Callable[[], Sequence[Sample]]  # the recent ones, oldest first; called once per poll
    clock: Callable[[], float]  # the samples' monotonic seconds
    sleep: Callable[[float], None]
    notify: Callable[[str], None] = lambda text: None
    platform: str = sys.platform
    leftovers: Callable[[], Finding] | None = None  # looks for leftovers of earlier processes; called once per poll
    busy_spent_s: float = 0.0
    orphan_spent_s: float = 0.0
    canary_ratio: float | None = None  # of the last canary

    def wait(self, canary: Callable[[], float | None] | None = None) -> Passage:
        """Wait until one trial may start.

        Args:
            canary: the speed of a short decode now over that of a cold machine; None: unknown. Costs a decode.
        """
        started = self.clock()
        if self.gate.cooldown_s > 0:
            self.notify(f"cooling down for {self.gate.cooldown_s:g} s")
            self.sleep(self.gate.cooldown_s)
        began = self.clock()
        waited_for: dict[str, float] = {}
        canary_at = -math.inf
        canary_finding: Finding | None = None
        while True:
            findings = check(self.gate, self.samples(), now=self.clock())
            findings += [self.leftovers()] if self.leftovers is not None else []
            due = canary is not None and self.clock() - canary_at >= self.gate.canary_interval_s
            # Only if nothing else is wrong: a decode would heat a machine that is waited for to cool, and the first
            # one must run on a cold machine.
            if canary is not None and due and all(finding.problem is None for finding in findings):
                self.canary_ratio, canary_at = canary(), self.clock()
                canary_finding = _canary(self.gate, self.canary_ratio)
            findings += [canary_finding] if canary_finding is not None else []
            problems = [finding for finding in findings if finding.problem is not None]
            patient = [finding for finding in problems if self._left_s(finding, began) > 0]
            if not patient:
                return self._passage(started, findings, problems, waited_for)
            self._pause(patient, began, waited_for)

    def _left_s(self, finding: Finding, began: float) -> float:
        """Return how many seconds longer this condition is waited for."""
        waited_s = self.clock() - began
        if finding.kind == ORPHAN:
            return min(self.gate.timeout_s - waited_s, self.gate.timeout_s - self.orphan_spent_s)
        if finding.kind != BUSY:
            return self.gate.timeout_s - waited_s
        timeout_s, budget_s = busy_limits_s(self.gate, self.platform)
        return min(timeout_s - waited_s, budget_s - self.busy_spent_s)

    def _pause(self, patient: Sequence[Finding], began: float, waited_for: dict[str, float]) -> None:
        left_s = max(self._left_s(finding, began) for finding in patient)
        words = "; ".join(finding.problem or "" for finding in patient)
        self.notify(f"{words} ({math.ceil(left_s)} s left)")
        pause_s = min(POLL_S, left_s)
        self.sleep(pause_s)
        for finding in patient:
            waited_for[finding.name] = waited_for.get(finding.name, 0.0) + pause_s
        kinds = {finding.kind for finding in patient}
        if kinds == {BUSY}:
            self.busy_spent_s += pause_s
        if ORPHAN in kinds:
            self.orphan_spent_s += pause_s

    def _passage(
        self,
        started: float,
        findings: Sequence[Finding],
        problems: Sequence[Finding],
        waited_for: Mapping[str, float],
    ) -> Passage:
        waited_s = self.clock() - started
        words = "; ".join(finding.problem or "" for finding in problems)
        return Passage(
            waited_s=waited_s,
            hot_start=f"{words} after {waited_s:.0f} s" if problems else None,
            hot_kinds=tuple(dict.fromkeys(finding.kind for finding in problems)),
            skipped=bool(problems) and self.gate.on_timeout == "skip",
            waited_for=dict(waited_for),
            unreadable={finding.name: finding.unreadable for finding in findings if finding.unreadable is not None},
        )


def gate_words(gate: Gate, *, platform: str = sys.platform) -> str:
    """Describe for the plan what a gate waits for and how long it can delay a trial."""
    wanted = {
        "a cool machine": gate.thermal_level_max is not None or gate.canary_tokens > 0,
        "mains power": gate.power_source == "mains",
        f"power mode {gate.power_mode}": gate.power_mode is not None,
    }
    slow = " and ".join(name for name, asked in wanted.items() if asked and gate.timeout_s > 0)
    timeout_s, budget_s = busy_limits_s(gate, platform)
    waits = [f"{gate.timeout_s:g} s per trial for {slow}"] if slow else []
    if min(timeout_s, budget_s) > 0:
        waits.append(f"{timeout_s:g} s per trial and {budget_s:g} s per run for other load")
    if not waits:
        return "waits for nothing"
    any_power = "" if gate.power_source == "mains" else "; any power source"
    counts = " and counted: what that costs shows in the A/A control" if gate.exclude_hot_start == "none" else ""
    then = "is skipped" if gate.on_timeout == "skip" else f"runs, flagged hot_start{counts}"
    return f"waits up to {', '.join(waits)}; then the trial {then}{any_power}"


def busy_limits_s(gate: Gate, platform: str) -> tuple[float, float]:
    """Return the longest waits for other load, in seconds: per trial, and in the whole run."""
    timeout_s, budget_s = gate.busy_timeout_s, gate.busy_budget_s
    if timeout_s is None:
        timeout_s = min(_BUSY_TIMEOUT_S.get(platform, _BUSY_TIMEOUT_ELSEWHERE_S), gate.timeout_s)
    if budget_s is None:
        budget_s = _BUSY_BUDGET_S.get(platform, _BUSY_BUDGET_ELSEWHERE_S)
    return timeout_s, budget_s


def check(gate: Gate, samples: Sequence[Sample], *, now: float) -> list[Finding]:
    """Check every condition of the gate against the recent readings. Pure."""
    return list(_findings(gate, samples, now))


def _findings(gate: Gate, samples: Sequence[Sample], now: float) -> Iterator[Finding]:
    window = _Window(samples=samples, now=now)
    if (level := gate.thermal_level_max) is not None:
        yield window.at_most(
            "thermal_level", HEAT, level, "thermal level {:g}", window_s=gate.thermal_hold_s, peak=True
        )
    if gate.power_source == "mains":
        yield window.is_word("power_source", POWER, "mains", "power from {}")
    if gate.power_mode is not None:
        yield window.is_word("power_mode", POWER, gate.power_mode, "power mode {}")
    if (cores := gate.cpu_cores_others_max) is not None:
        yield window.at_most("cpu_cores_others", BUSY, cores, "others use {:.1f} cores", window_s=gate.cpu_window_s)
    if (spent := gate.gpu_ms_per_s_others_max) is not None:
        words = "others use {:.0f} ms/s of the GPU"
        yield window.at_most("gpu_ms_per_s_others", BUSY, spent, words, window_s=gate.gpu_window_s)
    if (pressure := gate.vm_pressure_max) is not None:
        yield window.at_most("vm_pressure", BUSY, pressure, "memory pressure {:g}", window_s=gate.cpu_window_s)
    if (share := gate.memory_stalled_max) is not None:
        yield window.growth("stalled_memory_us", BUSY, share, "tasks wait for memory {:.0%} of the time", gate)
    if (growth := gate.swap_growth_bytes_max) is not None:
        yield window.rise("swap_used_bytes", BUSY, growth, "swap grew by {:.0f} bytes", gate)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """The readings of each field within some seconds before now."""

    samples: Sequence[Sample]
    now: float

    def at_most(
        self, name: str, kind: str, limit: float, words: str, *, window_s: float, peak: bool = False
    ) -> Finding:
        """Require the mean over the window, or with `peak` the maximum, to be at most `limit`."""
        values = self._values(name, window_s)
        if not values:
            return self._unreadable(name, kind)
        found = max(values) if peak else sum(values) / len(values)
        if found <= limit:
            return Finding(name=name, kind=kind)
        held = f" for {window_s:g} s" if peak else ""
        return Finding(name=name, kind=kind, problem=f"{words.format(found)}, waiting for {limit:g}{held}")

    def is_word(self, name: str, kind: str, wanted: str, words: str) -> Finding:
        """Require the newest value to be the wanted word."""
        found = [r.value_text for s in self.samples for r in s.readings if r.field == name and r.value_text]
        if not found:
            return self._unreadable(name, kind)
        problem = None if found[-1] == wanted else f"{words.format(found[-1])}, waiting for {wanted}"
        return Finding(name=name, kind=kind, problem=problem)

    def growth(self, name: str, kind: str, limit: float, words: str, gate: Gate) -> Finding:
        """Require that a counter of microseconds grew by at most this share of the window."""
        recent = [s for s in self.samples if s.at_s > self.now - gate.cpu_window_s]
        values = self._values(name, gate.cpu_window_s)
        if not values:
            return self._unreadable(name, kind)
        if len(recent) < 2:
            return Finding(name=name, kind=kind, unreadable="a share of the time needs two samples")
        # The first sample's growth was before the window.
        share = sum(values[1:]) / _US_PER_S / (recent[-1].at_s - recent[0].at_s)
        problem = f"{words.format(share)}, waiting for {limit:.0%}" if share > limit else None
        return Finding(name=name, kind=kind, problem=problem)

    def rise(self, name: str, kind: str, limit: float, words: str, gate: Gate) -> Finding:
        """Require that the newest value exceeds the oldest of the window by at most `limit`."""
        values = self._values(name, gate.cpu_window_s)
        if not values:
            return self._unreadable(name, kind)
        rise = values[-1] - values[0]
        problem = f"{words.format(rise)} within {gate.cpu_window_s:g} s" if rise > limit else None
        return Finding(name=name, kind=kind, problem=problem)

    def _values(self, name: str, window_s: float) -> list[float]:
        """Return the values within the window, or else the newest value, for fields that are read seldom."""
        pairs = [(sample.at_s, value) for sample in self.samples if (value := sample.value(name)) is not None]
        recent = [value for at_s, value in pairs if at_s > self.now - window_s]
        return recent or [value for _, value in pairs[-1:]]

    def _unreadable(self, name: str, kind: str) -> Finding:
        reasons = [r.reason for s in self.samples for r in s.readings if r.field == name and r.reason]
        return Finding(name=name, kind=kind, unreadable=reasons[-1] if reasons else "not read on this platform")


def _canary(gate: Gate, ratio: float | None) -> Finding:
    if ratio is None:
        return Finding(name="canary", kind=HEAT, unreadable="no canary ran on a cold machine yet")
    problem = None
    if ratio < 1 - gate.canary_tolerance:
        problem = f"the canary runs at {ratio:.1%} of its cold speed, waiting for {1 - gate.canary_tolerance:.0%}"
    return Finding(name="canary", kind=HEAT, problem=problem)
