"""A self-test's report with the least that it can hold."""

from typing import Any

from orchestrator.selftest import REPORT_VERSION

MINIMAL: dict[str, Any] = {
    "report_version": REPORT_VERSION,
    "facts": {
        "platform": "darwin",
        "os": "macOS 26.1",
        "chip": "Apple M5",
        "python": "3.13.1",
        "machine": "arm64",
        "versions": {"mlx": "0.32.4"},
        "wheel_tags": {"mlx-metal": "py3-none-macosx_26_0_arm64"},
    },
    "readings": [],
    "checks": [{"name": "swap", "result": "agrees", "ours": "1", "other": "1"}],
    "answers": [
        {"kind": "run", "asked": "pmset -g batt", "found": "Now drawing from 'Battery Power'\n", "ms": 1.0},
        {"kind": "notify", "asked": "com.apple.system.thermalpressurelevel", "found": 2, "ms": 1.0},
        {"kind": "run", "asked": "vm_stat", "reason": "vm_stat is not installed", "ms": 1.0},
    ],
    "trials": {"first_decode_after_idle_s": {"0.5": 1.2}, "aa": {"reason": "no model"}},
}
