"""`interlace doctor --selftest`: whether this machine's readings are right, as a report that may be posted.

The readings are checked against second sources, a tiny model with random weights runs 20 trials against itself, decodes
after idling and is ended in the middle of an answer. The report holds each answer of the machine as it came, without
names, paths and addresses; `--replay` reads another machine's report with the parsers of today.
"""

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orchestrator.errors import InputError
from orchestrator.plan import Deadlines
from workers.environment import versions, wheel_tag
from workers.errors import WorkerFault
from workers.interpreter import origin_of
from workers.machine.crosschecks import AGREES, DISAGREES, UNREADABLE, Check, cross_checks
from workers.machine.host import is_translated, read_host
from workers.machine.recording import Recording, Replayed, as_values, from_values, personal_names, redacted
from workers.machine.system import LocalSystem, System
from workers.machine.telemetry import RATE_WINDOW_S, MachineReader, Reading
from workers.protocol import Generate, Generation, Load
from workers.supervision.worker_process import WorkerProcess, WorkerSpec

REPORT_VERSION = 1
IDLE_S = (0.5, 1.0, 2.0, 5.0)
_ROUNDS = 10  # of two entries each: 20 trials
_LOAD_S = 2.0
_DUMMY = {"name": "dummy-tiny", "source": "dummy", "shape": "tiny", "dtype": "float32"}
_SAMPLING = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "ignore_eos": True, "chat_template": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of one machine's self-test."""

    facts: dict[str, Any]  # of the machine and the interpreter
    readings: tuple[Reading, ...]  # by today's parsers
    checks: tuple[Check, ...]
    answers: tuple[dict[str, Any], ...]  # of the machine, redacted: see workers.machine.recording
    trials: dict[str, Any]  # the A/A comparison, first decodes after idling

    @property
    def disagreeing(self) -> tuple[Check, ...]:
        """The checks in which the two sources differ."""
        return tuple(check for check in self.checks if check.result == DISAGREES)


def self_test(note: Callable[[str], None] = lambda line: None) -> Report:
    """Test this machine; about two minutes.

    Args:
        note: called with each step's name as it begins.
    """
    system = Recording(LocalSystem())
    note("readings")
    readings = _readings(system)
    facts = _facts(system)
    checks: list[Check] = []
    for check in cross_checks(system):
        note(check.name)
        checks.append(check)
    note(f"{_LOAD_S:g} s of work for the GPU")
    checks.append(_gpu_work())
    with TemporaryDirectory(prefix="interlace-selftest-") as folder:
        note("a model in a decode: SIGTERM, SIGKILL, idling")
        checks += _ends_of_a_decode(Path(folder))
        idle = _after_idling(Path(folder))
        note(f"{2 * _ROUNDS} trials of a model against itself")
        aa = _trials(Path(folder))
    trials = dict(zip(_TRIALS, (idle, aa), strict=True))
    hide = personal_names()
    return Report(
        facts=facts,
        readings=readings,
        checks=tuple(_redacted_check(check, hide) for check in checks),
        answers=tuple(as_values(system.answers)),
        trials=trials,
    )


def as_json(report: Report) -> str:
    """The report as a file's text."""
    body = {"report_version": REPORT_VERSION, **asdict(report)}
    return json.dumps(_without_names(body, personal_names()), indent=1, ensure_ascii=False) + "\n"


def _without_names(value: Any, names: Sequence[str]) -> Any:
    """The same value with each text in it redacted."""
    match value:
        case str():
            return redacted(value, names=names)
        case dict():
            return {key: _without_names(each, names) for key, each in value.items()}
        case list() | tuple():
            return [_without_names(each, names) for each in value]
    return value


def replay(text: str) -> Report:
    """Another machine's report: its answers read by the parsers of today, its checks as they were.

    Raises:
        InputError: the text is not a report of this version.
    """
    try:
        body = json.loads(text)
        if body["report_version"] != REPORT_VERSION:
            raise InputError(f"the report has version {body['report_version']}; this interlace reads {REPORT_VERSION}")
        answers = from_values(body["answers"])
        facts, trials = _checked_facts(body["facts"]), {name: _table(body["trials"][name]) for name in _TRIALS}
        return Report(
            facts=facts,
            readings=_readings(Replayed(str(facts["platform"]), answers), wait_s=0.0),
            checks=tuple(Check(**_texts(check)) for check in body["checks"]),
            answers=tuple(body["answers"]),
            trials=trials,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(f"not a report of interlace doctor --selftest: {type(error).__name__}: {error}") from error


_TRIALS = ("first_decode_after_idle_s", "aa")
_FACTS = ("platform", "os", "chip", "python", "machine")


def _checked_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    return (
        dict(facts)
        | {name: str(facts[name]) for name in _FACTS}
        | {name: _texts(facts[name]) for name in ("versions", "wheel_tags")}
    )


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in values.items()}


def _table(values: Mapping[str, Any]) -> dict[str, float | str | None]:
    """Numbers and a reason, by name."""
    return {str(key): None if value is None else _number(key, value) for key, value in values.items()}


def _number(key: str, value: object) -> float | str:
    if key == "reason":
        return str(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{key} is {value!r}, which is not a number")
    return value


def _facts(system: System) -> dict[str, Any]:
    """The facts that identify a kind of machine and a build, but no person."""
    host = read_host(system)
    return {
        "platform": sys.platform,
        "os": host.os,
        "os_build": host.os_build,
        "chip": host.chip,
        "cpu_count": host.cpu_count,
        "performance_cores": host.performance_cores,
        "gpu_cores": host.gpu_cores,
        "memory_bytes": host.memory_bytes,
        "machine": platform.machine(),
        "translated": is_translated(system),
        "python_origin": origin_of(sys.base_prefix),
        "python": platform.python_version(),
        "python_build": platform.python_build()[1],
        "versions": {name: found for name, found in versions().items() if found is not None},
        "wheel_tags": {name: tag for name in ("mlx", "mlx-metal", "mlx-cpu") if (tag := wheel_tag(name)) is not None},
    }


def _readings(system: System, *, wait_s: float = 2 * RATE_WINDOW_S) -> tuple[Reading, ...]:
    reader = MachineReader(system)
    reader.read()
    time.sleep(wait_s)  # rates and growths need a second reading
    return reader.read()


def _gpu_work() -> Check:
    """Compare a load's GPU time by the counter of others' GPU time and by the load's own clock."""
    idle = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        # Seen from a process that does nothing, the load is another's.
        reader = MachineReader(LocalSystem(root_pid=idle.pid), only=("gpu_ms_per_s_others",))
        began_s, _ = time.monotonic(), reader.read()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "workers.machine.gpu_load", f"{_LOAD_S:g}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        took_s = time.monotonic() - began_s
        found = {each.field: each for each in reader.read()}.get("gpu_ms_per_s_others")
    finally:
        idle.kill()
        idle.wait()
    load = json.loads(done.stdout) if done.stdout else {"error": done.stderr[-200:]}
    return gpu_time_check(found, load, took_s=took_s)


def gpu_time_check(found: Reading | None, load: Mapping[str, Any], *, took_s: float) -> Check:
    """Compare what the counter saw of a load, in ms per second, with what the load says of itself."""
    name = "GPU time of others"
    reason = load.get("error")
    if reason is None and "gpu" not in str(load["device"]):
        reason = f"MLX has no GPU here: the load ran on {load['device']}"
    if reason is None and (found is None or found.value is None):
        reason = (found.reason if found is not None else None) or "this system counts no GPU time of processes"
    if reason is not None or found is None or found.value is None:
        return Check(name=name, result=UNREADABLE, ours=str(reason))
    ours_s, busy_s = found.value * took_s / 1000, float(load["busy_s"])
    agrees = 0.3 * busy_s <= ours_s <= 1.3 * busy_s + 0.5  # other programs may use the GPU too
    return Check(
        name=name,
        result=AGREES if agrees else DISAGREES,
        ours=f"{ours_s:.2f} s",
        other=f"{load['products']} products in {busy_s:.2f} s on {load['device']}",
    )


def _ends_of_a_decode(folder: Path) -> Iterator[Check]:
    """A model that is ended by a signal in the middle of an answer."""
    for number, kind in ((signal.SIGTERM, "SIGTERM"), (signal.SIGKILL, "SIGKILL")):
        try:
            yield _ended_in_a_decode(folder, number, kind)
        except WorkerFault as fault:
            yield Check(name=f"{kind} in a decode", result=UNREADABLE, ours=str(fault))


def _after_idling(folder: Path) -> dict[str, Any]:
    """How many times as long a first decode takes after so many seconds of idling; or the reason."""
    try:
        with _model(folder) as worker:
            return {f"{seconds:g}": round(_first_over_median(worker, seconds), 3) for seconds in IDLE_S}
    except WorkerFault as fault:
        return {"reason": str(fault)}


def _ended_in_a_decode(folder: Path, number: signal.Signals, kind: str) -> Check:
    name = f"{kind} in a decode"
    with _model(folder) as worker:
        pid = worker.pid
        assert pid is not None
        timer = threading.Timer(0.5, os.kill, (pid, number))
        timer.start()
        try:
            _ask(worker, tokens=20_000)
        except WorkerFault as fault:
            gone = not Path(f"/proc/{pid}").exists() if sys.platform == "linux" else _is_gone(pid)
            return Check(name=name, result=AGREES if gone else DISAGREES, ours=fault.kind.value, other=f"gone: {gone}")
        finally:
            timer.cancel()
        return Check(name=name, result=DISAGREES, ours="the decode went on", other=f"{kind} after 0.5 s")


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def _first_over_median(worker: WorkerProcess, idle_s: float) -> float:
    """The time of the first two tokens after idling over that of two tokens without."""
    usual = [_ask(worker, tokens=2).stamps_us[-1] for _ in range(7)]
    time.sleep(idle_s)
    return _ask(worker, tokens=2).stamps_us[-1] / statistics.median(usual)


def _ask(worker: WorkerProcess, *, tokens: int) -> Generation:
    turn = [{"role": "user", "content": "Good morning. Count to five."}]
    (answer,) = worker.generate(Generate(request_id="r", turns=[turn], max_tokens=tokens, seed=1), Deadlines())
    return answer


@contextmanager
def _model(folder: Path) -> Iterator[WorkerProcess]:
    spec = WorkerSpec(run_id="selftest", arm="model", log_path=folder / "log", journal_path=folder / "journal")
    sampling: dict[str, Any] = _SAMPLING | {"template_options": {}}
    request = Load(target="workers.engines.mlx_lm.MlxLm", settings={}, checkpoint=_DUMMY, draft=None, sampling=sampling)
    with WorkerProcess(spec) as worker:
        worker.load(request, Deadlines())
        yield worker


def _trials(folder: Path) -> dict[str, Any]:
    """The product itself, with a database of its own: a tiny model against itself in 20 trials."""
    overrides = ["checkpoint=dummy-tiny", "engine=mlx_lm", "workload=quick", "workload.max_tokens=32", "gate=none"]
    overrides += [f"design.rounds={_ROUNDS}", "design.bracket=false", "experiment=selftest"]
    environment = os.environ | {"INTERLACE_DB": str(folder / "selftest.db"), "INTERLACE_STATE": str(folder)}
    command = [sys.executable, "-P", "-m", "orchestrator"]
    ran = subprocess.run([*command, "run", *overrides, "--quiet"], capture_output=True, text=True, env=environment)
    if ran.returncode:
        return {"reason": redacted((ran.stderr or ran.stdout).strip()[-300:], names=personal_names())}
    done = subprocess.run(
        [*command, "audit", "last", "--format", "json"], capture_output=True, text=True, env=environment, check=True
    )
    return _floor(json.loads(done.stdout)["floors"])


def _floor(floors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The floor over all prompts."""
    for floor in floors:
        if floor["workload"] is floor["prompt_class"] is floor["turn"] is None:
            effect = floor["effect"]
            return {key: effect[key] for key in ("ratio", "ci_low", "ci_high", "rounds")}
    return {"reason": "the audit has no A/A comparison"}


def _redacted_check(check: Check, names: Sequence[str]) -> Check:
    return Check(
        name=check.name,
        result=check.result,
        ours=redacted(check.ours, names=names),
        other=redacted(check.other, names=names),
    )
