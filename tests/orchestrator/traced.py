"""Stored runs of a real model, small enough to look at: tests/fixtures/traced_*.json, rows by table.

    quickstart   8 and 4 bits, and the 8-bit model with the 4-bit one drafting for it
    passes       engine=verify_cost: passes of 1 to 16 tokens

SmolLM2 on two CPU cores that did other work as well: their speeds are no example, their rows are. Telemetry, packages
and the arms' configurations are left out.
"""

import json
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Engine

FIXTURES = Path(__file__).parent.parent / "fixtures"


def load_into(database: Engine, name: str) -> str:
    """Store the rows as they are; the run's id."""
    tables = json.loads((FIXTURES / f"traced_{name}.json").read_text(encoding="utf-8"))
    with database.begin() as connection:
        for table, content in tables.items():
            columns = ", ".join(f'"{name}"' for name in content["columns"])
            places = ", ".join(f":c{place}" for place in range(len(content["columns"])))
            statement = sa.text(f'INSERT INTO "{table}" ({columns}) VALUES ({places})')
            for row in content["rows"]:
                connection.execute(statement, {f"c{place}": value for place, value in enumerate(row)})
    run: str = tables["run"]["rows"][0][tables["run"]["columns"].index("id")]
    return run
