"""How engines refuse what they cannot run."""

import pytest

from workers.engines.mlx_lm import MlxLm
from workers.errors import EngineError


def refusal(engine: MlxLm) -> EngineError:
    with pytest.raises(EngineError) as caught:
        engine.load()
    assert "\n" not in str(caught.value)
    return caught.value
