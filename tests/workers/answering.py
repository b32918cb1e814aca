"""One engine in a worker of another interpreter: loaded, asked, stopped."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.plan import Deadlines
from workers.protocol import Generate, Generation, Load, Loaded
from workers.supervision.worker_process import WorkerProcess, WorkerSpec

DEADLINES = Deadlines(load_s=120, first_token_s=120, inter_token_s=60, total_s=120, teardown_s=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """A loaded worker."""

    process: WorkerProcess
    loaded: Loaded

    def ask(self, *prompts: str, max_tokens: int = 12) -> list[Generation]:
        """One conversation."""
        turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
        request = Generate(request_id="r", turns=turns, max_tokens=max_tokens, seed=3)
        return self.process.generate(request, DEADLINES)


@contextmanager
def answering(
    python: Path,
    target: str,
    *,
    folder: Path,
    checkpoint: Mapping[str, Any],
    draft: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> Iterator[Answering]:
    """A worker with this engine.

    Raises:
        WorkerFault: it does not load.
    """
    folder.mkdir(exist_ok=True)
    spec = WorkerSpec(
        run_id="run-1",
        arm="arm-1",
        log_path=folder / "worker.log",
        journal_path=folder / "journal.jsonl",
        python=str(python),
        environment={"HOME": str(folder)},  # these packages keep caches there
    )
    request = Load(
        target=target,
        settings=dict(settings or {}),
        checkpoint=dict(checkpoint),
        draft=None if draft is None else dict(draft),
        sampling={"name": "greedy"} | dict(sampling or {}),
    )
    with WorkerProcess(spec) as process:
        yield Answering(process=process, loaded=process.load(request, DEADLINES))


def check(answer: Generation, *, max_tokens: int) -> None:
    """Check what the contract demands of every speculative generation."""
    count = len(answer.token_ids)
    assert 1 <= count <= max_tokens
    assert len(answer.stamps_us) == count
    assert answer.stamps_us == sorted(answer.stamps_us)
    assert answer.steps is not None
    assert sum(step[2] for step in answer.steps) == count - 1
    for drafted, accepted, committed in answer.steps:
        assert 0 <= accepted <= drafted
        assert accepted <= committed <= accepted + 1
    sign = answer.evidence[0]
    assert sign.requested
    assert sign.drafted == sum(step[0] for step in answer.steps)
    assert sign.accepted == sum(step[1] for step in answer.steps)
