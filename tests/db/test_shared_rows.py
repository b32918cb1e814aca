"""A row that several runs share is stored once."""

from pathlib import Path

from sqlalchemy import func, select

from db import models
from db.session import open_database, transaction
from db.shared_rows import experiment_row, found_or_added


def test_rows_with_one_identity_are_one_row(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'test.db'}")
    with transaction(database) as session:
        first, other = experiment_row(session, "one"), experiment_row(session, "other")
        key = first.id
        assert other.id != key
    with transaction(database) as session:
        again = models.Experiment(id=models.new_id(), name="one", created_at=first.created_at)
        assert found_or_added(session, again, models.Experiment.name).id == key
        assert session.scalar(select(func.count()).select_from(models.Experiment)) == 2
