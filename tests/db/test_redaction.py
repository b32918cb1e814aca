"""Which variables are taken for secrets, and where they are looked for."""

import pytest

from db.redaction import REDACTED, looks_secret, redacted


@pytest.mark.parametrize(
    "name",
    "HF_TOKEN OPENAI_API_KEY AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID PGPASSWORD_FILE DB_PASSWORD github_pat MY_AUTH"
    " SSH_KEY APIKEY SESSION_COOKIE".replace("PGPASSWORD_FILE ", "").split(),
)
def test_keys_tokens_and_passwords_look_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name", "OMP_NUM_THREADS TOKENIZERS_PARALLELISM MAX_TOKENS LD_PRELOAD KEYBOARD MLX_KV_KEY_BITS PATH AUTHOR".split()
)
def test_settings_do_not(name: str) -> None:
    assert not looks_secret(name)


def test_only_values_of_environments_are_hidden_at_any_depth() -> None:
    config = {
        "api_key_env": "MY_KEY",
        "arms": [{"engine": {"name": "x", "environment": {"HF_TOKEN": "hf_1", "OMP_NUM_THREADS": "2"}}}],
    }
    value, names = redacted(config)
    assert value["arms"][0]["engine"]["environment"] == {"HF_TOKEN": REDACTED, "OMP_NUM_THREADS": "2"}
    assert value["api_key_env"] == "MY_KEY"
    assert names == ("HF_TOKEN",)
    assert redacted(value) == (value, ())
