"""The secrets of this process: collected before it prints anything, and kept out of every row."""

import os
from collections.abc import Mapping
from pathlib import Path

from db import redaction
from db.redaction import NOT_SECRET, allowed_by, literals, looks_secret
from workers.masking import KNOWN, NAMES_VARIABLE


def guard(environ: Mapping[str, str] = os.environ) -> None:
    """Mask, from now on, the secrets in this process's environment. May be called again."""
    redaction.mask_rows_with(KNOWN.mask)
    KNOWN.add_variables(secret_variables(environ), environ)
    KNOWN.add(_hub_token(environ))


def secret_variables(environ: Mapping[str, str]) -> list[str]:
    """The environment variables that hold a secret: by their names, or by their values."""
    allowed = allowed_by(environ) | {NOT_SECRET, NAMES_VARIABLE}  # which hold names
    given = [name for name in environ.get(NAMES_VARIABLE, "").split(",") if name]
    found = [name for name, value in environ.items() if looks_secret(name) or literals(value, named=False)]
    return [name for name in dict.fromkeys([*given, *found]) if name not in allowed]


def _hub_token(environ: Mapping[str, str]) -> str | None:
    """The login token of the hub's client, which the client sends automatically."""
    home = environ.get("HF_HOME") or Path(environ.get("HOME", "~")) / ".cache" / "huggingface"
    path = Path(environ.get("HF_TOKEN_PATH") or Path(home) / "token")
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
