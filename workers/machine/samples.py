"""The parent's end of the sampler: its latest samples, and their summary for a trial.

Times are this machine's monotonic seconds, the same in every process of one boot.
"""

import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from workers.errors import describe_exit
from workers.machine.process_identity import OWNER_MARK, owner_mark
from workers.machine.telemetry import Reading

KEPT = 20_000  # samples: five and a half hours at one per second
STOP_GRACE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The machine at one moment; rates and growths are those since the sample before."""

    at_s: float
    readings: tuple[Reading, ...]
    cpu_s: float | None = None  # what the sampler itself has spent so far

    def value(self, field: str) -> float | None:
        """A field's number; None: not read, or unreadable."""
        return next((reading.value for reading in self.readings if reading.field == field), None)


class Sampler:
    """A process that samples the machine until `stop`, or until this process ends. A context manager."""

    def __init__(self, *, interval_s: float) -> None:
        self.interval_s = interval_s
        self._samples: deque[Sample] = deque(maxlen=KEPT)
        command = [sys.executable, "-P", "-m", "workers.machine.sampler"]
        self._process = subprocess.Popen(
            [*command, "--interval-s", str(interval_s), "--root-pid", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {OWNER_MARK: owner_mark(), "INTERLACE_ARM": "sampler"},
            start_new_session=True,  # a Ctrl-C is the run's affair
        )
        self._thread = threading.Thread(target=self._read, name="sampler", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def problem(self) -> str | None:
        """Return why no more samples come."""
        returncode = self._process.poll()
        return None if returncode is None else f"the sampler ended ({describe_exit(returncode)})"

    def since(self, at_s: float) -> list[Sample]:
        """The samples from this moment on, oldest first."""
        return [sample for sample in tuple(self._samples) if sample.at_s >= at_s]

    def stop(self) -> None:
        """End it. May be called again."""
        self._process.terminate()
        try:
            self._process.wait(STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(STOP_GRACE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            body = json.loads(line)
            readings = tuple(Reading(**reading) for reading in body["readings"])
            self._samples.append(Sample(at_s=body["at_s"], readings=readings, cpu_s=body["cpu_s"]))


def summarise(samples: Sequence[Sample], *, problem: str | None = None) -> tuple[Reading, ...]:
    """Summarise a trial: the extremes and the mean of each field over its samples.

    Clocks have a mean and a minimum, growths a sum, everything else a mean and a maximum. Without a sample one reading
    says why.
    """
    if not samples:
        reason = problem or "the trial ended before the next sample was due"
        return (Reading(field="samples", source="sampler", reason=reason),)
    found = [Reading(field="samples", value=float(len(samples)), source="sampler")]
    for field in dict.fromkeys(reading.field for sample in samples for reading in sample.readings):
        found += _summary(field, samples)
    spent = [sample.cpu_s for sample in samples if sample.cpu_s is not None]
    if spent:
        found.append(Reading(field="sampler_cpu_s", value=spent[-1] - spent[0], source="its own clock"))
    return tuple(found)


def _summary(field: str, samples: Sequence[Sample]) -> list[Reading]:
    readings = [reading for sample in samples for reading in sample.readings if reading.field == field]
    known = [reading for reading in readings if reading.value is not None]
    values = [reading.value for reading in known if reading.value is not None]
    if not values:
        last = readings[-1]
        return [Reading(field=field, value_text=last.value_text, source=last.source, reason=last.reason)]
    source, mean = known[-1].source, sum(values) / len(values)
    if field.endswith("_us"):
        return [Reading(field=f"{field}_sum", value=sum(values), source=source)]
    low = field.endswith("_mhz")
    extreme = min(values) if low else max(values)
    text = next(reading.value_text for reading in known if reading.value == extreme)
    return [
        Reading(field=f"{field}_mean", value=mean, source=source),
        Reading(field=f"{field}_{'min' if low else 'max'}", value=extreme, value_text=text, source=source),
    ]
