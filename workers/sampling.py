"""The sampler's settings, declared once: checked by the configuration, applied by engines, compared by the audit.

Standard library only, for the same reason as `workers.settings`.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import dataclass, fields
from typing import Any

from workers.settings import MISSING, above_up_to, at_least, setting, within

SHAPES_CHANCES = ("top_p", "top_k", "min_p")  # without effect at temperature 0: they keep the likeliest token


@dataclass  # not frozen: it is the Hydra schema as well
class Sampling:
    """How the next token is chosen, and how messages become a prompt."""

    name: str = setting(MISSING, "The option's name.")
    temperature: float = setting(0.0, "0 takes the likeliest token.", limit=at_least(0))
    top_p: float = setting(
        1.0, "Draw from the likeliest tokens that together have this probability.", limit=above_up_to(0, 1)
    )
    top_k: int = setting(0, "Draw from so many likeliest tokens. 0: from all.", limit=at_least(0))
    min_p: float = setting(0.0, "Draw from tokens at least this likely, relative to the likeliest.", limit=within(0, 1))
    ignore_eos: bool = setting(False, "Run to max_tokens whatever the model says, so that lengths are equal.")
    chat_template: bool = setting(True, "Apply the model's chat template to the messages.")
    template_options: dict[str, Any] = setting({}, "Further arguments of the template.")


def effective(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """The temperature (None if unknown), then the settings that differ from their default and have an effect.

    Two arms with equal ones sample alike. Accepts a plan's sampling, which may lack settings that its source does not
    state.
    """
    temperature = sampling.get("temperature")
    defaults = {each.name: each.default if each.default is not NO_DEFAULT else {} for each in fields(Sampling)}
    without_effect = {"name", "temperature", *(SHAPES_CHANCES if temperature == 0 else ())}
    changed = {
        key: value
        for key, value in sampling.items()
        if key not in without_effect and value != defaults.get(key, NO_DEFAULT)
    }
    return {"temperature": temperature, **changed}


def sampler_words(sampler: Mapping[str, Any]) -> str:
    """An `effective` sampler in words, such as "temperature 0.6, top_p 0.9"."""
    temperature = sampler["temperature"]
    words = ["an unknown temperature" if temperature is None else f"temperature {temperature:g}"]
    words += [f"{key} {json.dumps(value)}" for key, value in sampler.items() if key != "temperature"]
    return ", ".join(words)
