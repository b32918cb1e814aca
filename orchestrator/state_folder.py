"""The folder in which this user's processes find each other, whichever database they use."""

import os
from pathlib import Path

import platformdirs

ENVIRONMENT_VARIABLE = "INTERLACE_STATE"


def state_folder() -> Path:
    """INTERLACE_STATE, else the platform's state folder."""
    chosen = os.environ.get(ENVIRONMENT_VARIABLE)
    return Path(chosen).expanduser() if chosen else platformdirs.user_state_path("interlace", appauthor=False)
