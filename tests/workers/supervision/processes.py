"""Workers and processes that several modules start and wait for."""

from pathlib import Path

import psutil

from orchestrator.plan import Deadlines
from workers.supervision.worker_process import WorkerSpec

DEADLINES = Deadlines(load_s=60, first_token_s=60, inter_token_s=60, total_s=60, teardown_s=20)


def spec(folder: Path) -> WorkerSpec:
    return WorkerSpec(run_id="r", arm="a", log_path=folder / "a.log", journal_path=folder / "workers.jsonl")


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
