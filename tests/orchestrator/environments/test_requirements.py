"""The requirements that a user may name: those of pip without its options, in a form that a plan can hold."""

from pathlib import Path

import pytest

from orchestrator.environments.requirements import check_python, is_package, label, read
from orchestrator.errors import InputError

from .local_index import add_wheel


@pytest.mark.parametrize(
    ("text", "name", "shown", "exact"),
    [
        ("mlx-lm==0.31.3", "mlx-lm", "mlx-lm 0.31.3", True),
        (" MLX_lm == 0.31.3 ", "mlx-lm", "MLX_lm 0.31.3", True),
        ("mlx-lm>=0.31,<0.32", "mlx-lm", "mlx-lm below 0.32 from 0.31", False),
        ("mlx-lm==0.31.*", "mlx-lm", "mlx-lm 0.31.*", False),
        ("mlx-lm", "mlx-lm", "mlx-lm newest", False),
        ("git+https://example.org/ml/mlx-lm.git@main", None, "mlx-lm main", False),
        ("git+https://example.org/ml/mlx-lm@" + "a" * 40, None, "mlx-lm " + "a" * 12, True),
        ("git+ssh://git@example.org/ml/mlx-lm@v1#egg=mlx-lm", "mlx-lm", "mlx-lm v1", False),
        ("mlx-lm @ git+https://example.org/fork@main", "mlx-lm", "mlx-lm fork main", False),
    ],
)
def test_a_requirement_has_a_name_and_a_label(text: str, name: str | None, shown: str, exact: bool) -> None:
    found = read(text)
    assert (found.name, found.exact) == (name, exact)
    assert set(found.label.split()) == set(shown.split())


def test_a_wheel_and_a_source_tree_are_absolute_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = add_wheel(tmp_path, "mlx-lm", "9.1")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "pyproject.toml").write_text('[project]\nname = "MLX_LM"\nversion = "1"\n')
    monkeypatch.chdir(tmp_path)
    assert (read(wheel.name).text, read(wheel.name).label) == (str(wheel), "mlx-lm 9.1")
    assert (read("./tree").text, read("./tree").name) == (str(tree), "mlx-lm")
    assert read("./tree", folder=tmp_path).name == "mlx-lm"


@pytest.mark.parametrize(
    "text", ["mlx-lm==0.31.3", "./tree", "a>=1", "git+https://example.org/x", "x-1-py3-none-any.whl"]
)
def test_what_is_typed_in_place_of_an_option(text: str) -> None:
    assert is_package(text)
    assert not is_package("latest")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-r other.txt",
        "--index-url https://example.org/simple",
        "mlx-lm==1\n--extra-index-url https://example.org",
        "mlx-lm==${TOKEN}",
        "mlx lm",
        "mlx-lm=0.31",
        "git+https://me:word@example.org/fork",
        "git+https://token@example.org/fork",
        "./nothing-here",
        "./nothing-1.0-py3-none-any.whl",
        "/tmp/not-a-wheel.whl",
    ],
)
def test_options_variables_logins_and_nonsense_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"environment\.packages"):
        read(text)


def test_a_folder_without_a_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"pyproject\.toml"):
        read(str(tmp_path))


def test_many_packages_leave_the_name_to_the_option() -> None:
    assert label(["a==1", "b==2"], otherwise="mine") == "a 1 + b 2"
    assert label(["a==1", "b==2", "c==3"], otherwise="mine") == "mine"


@pytest.mark.parametrize("python", ["3", "python", "2.7", "-c import os", "bin/python"])
def test_python_is_a_version_or_a_path(python: str) -> None:
    with pytest.raises(InputError, match=r"environment\.python"):
        check_python(python)
    check_python("3.12")
    check_python("/usr/bin/python3")
