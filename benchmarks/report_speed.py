"""Time a report by the number of points in it: from the rows to the sections, from these to the page.

    python benchmarks/report_speed.py [--points 1000 10000] [--repeats 3]

The rows are made up, as a database would give them; the audit, which every command makes, is timed beside it.
"""

import argparse
import datetime as dt
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from orchestrator.judging import judge
from orchestrator.report.building import build_report
from orchestrator.report.loading import load_material
from orchestrator.report.material import Material
from orchestrator.report.render_html import render_page
from orchestrator.stored_run import StoredRun
from tests.orchestrator.plans import arm, plan
from tests.orchestrator.report.runs import store

ARMS = 4  # beside the control's second entry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    wanted = parser.parse_args()
    with TemporaryDirectory() as folder:
        planned = plan(*(arm(f"effect {1 + number / 10}", effect=1 + number / 10) for number in range(ARMS)), rounds=6)
        database, run_id = store(Path(folder), planned)
        small = load_material(StoredRun.load(database, run_id))
        database.dispose()
    print(f"{'points':>8} {'audit':>8} {'sections':>9} {'page':>8} {'page size':>10}")
    for points in wanted.points:
        material = grown(small, points)
        best = min((timed(material) for _ in range(wanted.repeats)), key=sum)
        size = len(render_page(build_report(material, made_at=dt.datetime.now(dt.UTC))))
        print(f"{points:>8} {best[0]:>7.2f}s {best[1]:>8.2f}s {best[2]:>7.2f}s {size / 1e3:>7.0f} kB")


def timed(material: Material) -> tuple[float, float, float]:
    """Seconds of processor time for the audit, the sections and the page."""
    start = time.process_time()
    judge(material.trials, material.plan)
    judged = time.process_time()
    report = build_report(material, made_at=dt.datetime.now(dt.UTC))
    built = time.process_time()
    render_page(report)
    return judged - start, built - judged, time.process_time() - built


def grown(material: Material, points: int) -> Material:
    """The same run with so many measured trials, on a machine that slows down by 30 %."""
    measured = material.trials[material.trials["kind"] == "measured"]
    copies = -(-points // len(measured))
    rows = pd.concat([measured] * copies, ignore_index=True)
    copy = np.repeat(np.arange(copies), len(measured))
    rows["round"] = (rows["round"].astype("int64") + 6 * copy).astype("Int64")
    rows["trial_id"] = rows["trial_id"].astype(str) + "-" + copy.astype(str)
    rows["sequence"] = pd.array(np.arange(len(rows)), dtype="Int64")
    rows["started_at"] = rows["started_at"].iloc[0] + pd.to_timedelta(np.arange(len(rows)) * 20, unit="s")
    rng = np.random.default_rng(0)
    slowed = np.exp(np.log(0.7) * np.arange(len(rows)) / len(rows) + 0.01 * rng.standard_normal(len(rows)))
    rows["end_to_end_tps"] = rows["end_to_end_tps"] * slowed
    return replace(material, trials=rows.head(points), result=judge(rows.head(points), material.plan))


if __name__ == "__main__":
    main()
