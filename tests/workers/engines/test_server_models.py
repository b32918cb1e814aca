"""A server that answers with another model is found out by the name in its answers."""

import pytest

from workers.engines.server_models import flag_model, is_same_model, stated_model


@pytest.mark.parametrize(
    ("asked", "stated"),
    [
        ("qwen3:8b", "qwen3:8b"),
        ("llama3", "llama3:latest"),
        ("mlx-community/Qwen3-8B-4bit", "Qwen3-8B-4bit"),
        ("mlx-community/Qwen3-8B-4bit", "/x/hub/models--mlx-community--Qwen3-8B-4bit/snapshots/0a1b2c"),
        ("/models/qwen3-8b-q4.gguf", "qwen3-8b-q4"),
        ("gpt-4o", "gpt-4o-2024-08-06"),
        ("gpt-4o-20240806", "gpt-4o"),
    ],
)
def test_one_model_has_several_names(asked: str, stated: str) -> None:
    assert is_same_model(asked, stated)


@pytest.mark.parametrize(
    ("asked", "stated"),
    [
        ("asked-8b", "other-7b"),
        ("qwen3:8b", "qwen3:4b"),
        ("Qwen3-8B-4bit", "Qwen3-8B"),
        ("llama3", "llama3.1"),
        ("m-1234-56-78", "m"),
    ],
)
def test_another_model_is_another(asked: str, stated: str) -> None:
    assert not is_same_model(asked, stated)


@pytest.mark.parametrize(
    ("stated", "earlier", "flags"),
    [
        (None, "a", []),
        ("a", None, []),
        ("b", None, ["other_model"]),
        ("b", "b", ["other_model"]),
        ("a", "b", ["model_changed"]),
        ("a", "hub/a", []),
        ("c", "b", ["other_model", "model_changed"]),
    ],
)
def test_a_swap_is_seen_against_the_request_and_against_earlier_answers(
    stated: str | None, earlier: str | None, flags: list[str]
) -> None:
    found: list[str] = []
    flag_model("a", stated, earlier, found)
    assert found == flags


@pytest.mark.parametrize("model", [None, 7, "", " ", ["a"]])
def test_an_answer_may_name_no_model(model: object) -> None:
    assert stated_model({"model": model}) is None
