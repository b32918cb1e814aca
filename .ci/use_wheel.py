"""Asks an installed interlace what it is and what it stored. Run by `.ci/verify-wheel` with the bare environment."""

import importlib.metadata
import importlib.resources
import sys
from pathlib import Path

import interlace

PACKAGES = {"conf", "db", "interlace", "migrations", "orchestrator", "workers"}


def main() -> int:
    """Print each answer; 1 if one is wrong."""
    files = importlib.metadata.files("interlace") or []
    installed = {file.parts[0] for file in files if ".." not in file.parts and not file.parts[0].endswith(".dist-info")}
    site = Path(interlace.__file__).parent.parent
    audit, trials = interlace.audit("last"), interlace.trials("last")
    checks = {
        f"top-level packages are {', '.join(sorted(PACKAGES))}": installed == PACKAGES,
        "each says that it is typed": all((site / name / "py.typed").is_file() for name in PACKAGES),
        "no test came along": not any("tests" in file.parts for file in files),
        "the public module is there once": not (site / "orchestrator" / "interlace").exists(),
        "configuration is data of the package": importlib.resources.files("conf").joinpath("config.yaml").is_file(),
        "trials are rows": len(trials) > 0 and {"arm", "decode_tps"} <= set(trials.columns),
        "verdicts are rows": list(interlace.verdicts("last")["verdict"]) == list(audit.table["verdict"]),
        "an audit draws itself": "<table" in audit._repr_html_() and "Simulated" in audit._repr_html_(),
        "the run is listed": audit.run_id in set(interlace.runs()["run_id"]),
    }
    for name, fine in checks.items():
        sys.stdout.write(f"{name}: {'ok' if fine else 'FAILED'}\n")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
