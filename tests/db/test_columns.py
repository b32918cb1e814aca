"""The meaning of every column is written exactly once."""

import pytest
import sqlalchemy as sa

from db.columns import describe, tables, views
from db.errors import QueryError
from tests.db.conftest import Database
from tests.db.filling import Filled


@pytest.mark.parametrize("view", ["trial_flat", "verdict_flat"])
def test_every_column_of_a_view_is_described_in_its_order(view: str, stored: tuple[Database, Filled]) -> None:
    with stored[0].engine.connect() as connection:
        found = list(connection.execute(sa.text(f"SELECT * FROM {view} LIMIT 0")).keys())
    assert list(views()[view].columns) == found, "db/columns.toml and the view differ"
    assert all(views()[view].columns.values())
    assert set(views()[view].shown) <= set(found)


def test_every_table_is_described(stored: tuple[Database, Filled]) -> None:
    with stored[0].engine.connect() as connection:
        names = set(sa.inspect(connection).get_table_names())
    assert set(tables()) == names - {"interlace_version"}


def test_a_description_has_types_and_words(stored: tuple[Database, Filled]) -> None:
    found = describe(stored[0].url, "trial_flat")
    (tps,) = (column for column in found.columns if column.name == "decode_tps")
    assert (tps.kind.lower(), tps.meaning) == ("double", "Tokens per second after the pass of the first token.")
    assert "One row per generation" in found.meaning
    assert [column.name for column in describe(stored[0].url, "host").columns][:2] == ["id", "name"]


def test_an_unknown_view_is_one_clear_line(stored: tuple[Database, Filled]) -> None:
    with pytest.raises(QueryError, match=r"'trialflat': no table or view of this database; did you mean trial_flat"):
        describe(stored[0].url, "trialflat")
