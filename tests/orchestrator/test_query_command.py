"""`interlace query` as it is typed: a name, a file, or SQL; what it lists, shows and describes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from db.errors import DatabaseError, LocationError, QueryError
from db.session import open_database
from orchestrator.cli import cli
from orchestrator.errors import InputError
from tests.db.filling import Filled, fill

Query = Callable[..., str]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Filled]:
    path = tmp_path_factory.mktemp("query") / "interlace.db"
    engine = open_database(f"sqlite:///{path}")
    found = fill(engine)
    engine.dispose()
    return path, found


@pytest.fixture
def query(
    filled: tuple[Path, Filled],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Query:
    """Return the output of the command in a separate folder, at 80 columns."""
    monkeypatch.setenv("INTERLACE_DB", str(filled[0]))
    monkeypatch.setenv("INTERLACE_QUERIES", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def asking(*arguments: str) -> str:
        cli.main(["query", *arguments], standalone_mode=False)
        return capsys.readouterr().out

    return asking


def test_a_name_runs_a_stored_query_about_the_newest_run(query: Query) -> None:
    lines = query("verdicts", "--format", "csv").splitlines()
    assert lines[0] == "treatment,scope,verdict,direction,ratio,ci_low,ci_high,p_value"
    assert len(lines) == 5


def test_a_parameter_names_another_run(query: Query, filled: tuple[Path, Filled]) -> None:
    part = filled[1].first_run[-12:]
    assert len(query("verdicts", "--param", f"run={part}", "--format", "csv").splitlines()) == 2


def test_sql_is_run_as_it_is(query: Query) -> None:
    assert query("SELECT count(*) AS n FROM run", "--format", "csv") == "n\n2\n"
    assert query("SELECT count(*) AS n FROM run WHERE id = :run", "--format", "csv") == "n\n1\n"


def test_a_file_is_run_by_its_ending_or_by_its_option(query: Query, tmp_path: Path) -> None:
    text = "-- How many?\n-- :least = 1\nSELECT count(*) AS n FROM run WHERE 2 >= :least\n"
    (tmp_path / "how many.sql").write_text(text)
    (tmp_path / "how_many.txt").write_text(text)
    assert query("how many.sql", "--format", "csv") == "n\n2\n"
    assert query("--file", "how_many.txt", "--param", "least=3", "--format", "csv") == "n\n0\n"


def test_a_query_of_ones_own_is_listed_first_and_runs(query: Query, tmp_path: Path) -> None:
    (tmp_path / "mine.sql").write_text("-- My \x1b[31mquestion?\nSELECT 7 AS x\n")
    assert query("mine", "--format", "csv") == "x\n7\n"
    listed = query("--list")
    assert listed.index("My ␛[31mquestion?") < listed.index("runs\n")


def test_the_list_names_each_query_with_its_parameters_in_80_columns(query: Query) -> None:
    listed = query("--list")
    assert ":level=1" in listed
    assert "Which block size is best, by chip and MLX version?" in listed
    assert all(len(line) <= 80 for line in listed.splitlines() if not line.startswith("your own"))


def test_show_prints_the_query_as_it_can_be_run(query: Query, tmp_path: Path) -> None:
    shown = query("speed", "--show")
    assert shown.startswith("-- How fast is each arm")
    (tmp_path / "copy.sql").write_text(shown)
    assert query("copy", "--format", "csv") == query("speed", "--format", "csv")


def test_describe_prints_what_columns_mean(query: Query) -> None:
    described = query("--describe", "trial_flat")
    assert "decode_tps double Tokens per second after the pass of the first token." in " ".join(described.split())
    assert all(len(line) <= 80 for line in described.splitlines()[1:])  # the first is a sentence, whole in a log


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["sped"], QueryError, "did you mean speed"),
        (["nowhere.sql"], LocationError, "cannot be read"),
        (["--file", "nowhere"], LocationError, "cannot be read"),
        ([], InputError, "see `interlace query --list`"),
        (["speed", "--file", "x.sql"], InputError, "give one of"),
        (["over-time"], QueryError, "no value for the parameter :arm; give it with --param arm=VALUE"),
        (["speed", "--param", "rnu=1"], QueryError, "holds no :rnu"),
        (["speed", "--param", "run=xyz"], DatabaseError, "no run has this in its id"),
        (["DELETE FROM run"], QueryError, "only reading is allowed"),
        (["--describe", "trials"], QueryError, "no table or view"),
    ],
)
def test_a_mistake_is_one_clear_line(arguments: list[str], error: type[Exception], message: str, query: Query) -> None:
    with pytest.raises(error, match=message) as caught:
        query(*arguments)
    assert "\n" not in str(caught.value)
    assert getattr(caught.value, "exit_code", None) == 2
