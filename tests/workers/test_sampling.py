"""Two samplers are equal if they differ in nothing that has an effect."""

from typing import Any

import pytest

from conf.store import GROUP_SCHEMAS
from workers.sampling import Sampling, effective, sampler_words


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"temperature": 0.0}, "temperature 0"),
        ({"temperature": 0, "top_p": 0.1, "top_k": 1, "min_p": 0.2}, "temperature 0"),  # the likeliest token stays
        ({"temperature": 0.0, "ignore_eos": True}, "temperature 0, ignore_eos true"),
        ({"temperature": 0.6, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "name": "warm"}, "temperature 0.6"),
        ({"temperature": 0.6, "top_k": 20}, "temperature 0.6, top_k 20"),
        ({"temperature": 0.6, "template_options": {}}, "temperature 0.6"),
        ({"temperature": 0.6, "template_options": {"a": 1}}, 'temperature 0.6, template_options {"a": 1}'),
        ({"temperature": None}, "an unknown temperature"),
        ({}, "an unknown temperature"),
    ],
)
def test_what_has_no_effect_is_not_mentioned(sampling: dict[str, Any], words: str) -> None:
    assert sampler_words(effective(sampling)) == words


def test_the_configuration_checks_the_declaration_that_engines_apply() -> None:
    assert GROUP_SCHEMAS["sampling"] is Sampling
