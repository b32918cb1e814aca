"""Which variables are taken for secrets, and where they are looked for."""

import datetime as dt
from pathlib import Path

import pytest
from sqlalchemy import insert, select, update

from db import redaction
from db.models import Experiment
from db.redaction import REDACTED, allowed_by, literals, looks_secret, redacted
from db.session import open_database, read_only, transaction


@pytest.mark.parametrize(
    "name",
    "HF_TOKEN OPENAI_API_KEY AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID PGPASSWORD_FILE DB_PASSWORD github_pat MY_AUTH"
    " SSH_KEY APIKEY SESSION_COOKIE OPENAI_KEY TOKEN2 MYTOKEN GITHUB_PAT_RO SENTRY_DSN SLACK_WEBHOOK_URL X-Api-Key"
    " apiKey access_token PGPASSWORD_FILE SMTP_PASS DB_PWD pass AZURE_SIG signature SIGNING_KEY_ID PASSPHRASE"
    " CREDENTIALS_RO JWT FCM_WEBHOOKS ENCRYPTIONKEY X_CREDS MY_PASSCODE ENCRYPTION_KEY_B64 SECRET_KEY_BASE api_keys"
    " STRIPE_KEY_LIVE".split(),
)
def test_keys_tokens_and_passwords_look_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    "OMP_NUM_THREADS TOKENIZERS_PARALLELISM MAX_TOKENS LD_PRELOAD KEYBOARD MLX_KV_KEY_BITS PATH AUTHOR PWD OLDPWD"
    " HTTPS_PROXY MONKEY COMPAT XAUTHORITY PASS_RATE KEY_BITS PWD_LOG COMPASS DESIGN TURKEY _ ID FILE 1".split(),
)
def test_settings_do_not(name: str) -> None:
    assert not looks_secret(name)


def test_what_stands_below_a_secrets_name_is_secret_whatever_it_is_called() -> None:
    config = {"engine": {"body": {"auth": {"value": "Zq8xT4vLk29s"}, "api_keys": [{"primary": "Zq8xT4vLk29s"}]}}}
    assert "Zq8x" not in str(redacted(config)[0])
    assert redacted({"body": {"options": {"value": "Zq8xT4vLk29s"}}})[1] == ()


def test_variables_are_hidden_at_any_depth_and_names_of_variables_are_not() -> None:
    config = {
        "api_key_env": "MY_KEY",
        "arms": [{"engine": {"name": "x", "environment": {"HF_TOKEN": "hf_1", "OMP_NUM_THREADS": "2"}}}],
    }
    value, names = redacted(config)
    assert value["arms"][0]["engine"]["environment"] == {"HF_TOKEN": REDACTED, "OMP_NUM_THREADS": "2"}
    assert value["api_key_env"] == "MY_KEY"
    assert names == ("HF_TOKEN",)
    assert redacted(value) == (value, ())


@pytest.mark.parametrize(
    "text",
    [
        "curl -H 'Authorization: Bearer SECRETSECRET' http://h",
        "curl -H 'X-Api-Key: SECRETSECRET' http://h",
        "curl --user me:SECRETSECRET http://h",
        "http://u:SECRETSECRET@h:1",
        "https://SECRETSECRET@sentry.example/1",
        "postgres://u:SECRETSECRET@h/db",
        "https://hooks.slack.com/services/T0/B0/SECRETSECRET",
        "https://discordapp.com/api/v10/webhooks/123/SECRETSECRET",
        "https://outlook.office.com/webhook/a@b/IncomingWebhook/c/SECRETSECRET",
        "https://x.webhook.office.com/webhookb2/a@b/IncomingWebhook/SECRETSECRET",
        "https://ntfy.sh/SECRETSECRET",
        "https://hc-ping.com/SECRETSECRET",
        "https://maker.ifttt.com/trigger/done/with/key/SECRETSECRET",
        "https://api.telegram.org/bot123456789:AASECRETSECRET_SECRETSECRET-abcdefg/sendMessage",
        "https://x.azurewebsites.net/api/f?code=SECRETSECRET==",
        "http://h/v1?a=1&session_id=SECRETSECRET",
        "http://h/v1?sid=SECRETSECRET#top",
        "http://h/v1?x=1&api_key=SECRETSECRET",
        "serve --api-key SECRETSECRET --port 1",
        "OPENAI_KEY=SECRETSECRET serve",
        '{"api_key": "SECRETSECRET"}',
        "sk-SECRETSECRET",
        "socks5h://SECRETSECRET@h",
        "sshpass -p SECRETSECRET ssh h tail -f x",
        "mysql -u me -pSECRETSECRET",
        "Basic SECRETSECRET==",
        "wandb_v1_SECRETSECRETSECRET",
        "AGE-SECRET-KEY-1SECRETSECRETSECRETAB",
        "ya29.SECRETSECRETSECRETAB",
        "SG.SECRETSECRETSECRET.SECRETSECRETSECRET",
        "ASIASECRETSECRETABCD",
        "123456789:AASECRETSECRET_SECRETSECRET-abcdefg",
        "hf_SECRETSECRET",
    ],
)
def test_secrets_are_found_in_texts(text: str) -> None:
    assert any("SECRETSECRET" in found for found in literals(text))


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8080/v1",
        "http://u:${oc.env:PASSWORD}@h?api_key=${oc.env:KEY}",
        "docker logs -f --tail 0 vllm",
        "ssh host tail -f /var/log/server.log",
        r"draft_token=(\d+) accepted",
        "tokens: 12 of 100000, max_token=1000, stop_token=</s>",
        "mlx-community/Llama-3.2-1B-Instruct-4bit",
        "sk-learn-models-v",
        "git@github.com:o/r",
        "Basic arithmetic",
        "mysqldump -p 3306 --port 1",
        "12:AAB",
        "https://example.com/docs/webhooks",
        "http://h/v1?code=${oc.env:CODE}&sid=12345678",
        "exit code=notfound",
    ],
)
def test_nothing_is_found_where_nothing_is(text: str) -> None:
    assert literals(text) == []


def test_what_an_older_version_stored_elsewhere_is_hidden_too() -> None:
    config = {"engine": {"url": "http://u:SECRETSECRET@h", "body": {"api_key": "SECRETSECRET", "n": 1}, "k": "${x}"}}
    value, names = redacted(config)
    assert value == {"engine": {"url": f"http://{REDACTED}@h", "body": {"api_key": REDACTED, "n": 1}, "k": "${x}"}}
    assert names == ("url", "api_key")


def test_what_was_declared_no_secret_and_references_are_left() -> None:
    config = {"environment": {"MYTOKEN": "word", "HF_TOKEN": "${oc.env:HF_TOKEN}"}}
    allowed = allowed_by({"INTERLACE_NOT_SECRET": "engine.environment.MYTOKEN, X"})
    assert redacted(config, allowed=allowed) == (config, ())


def test_every_row_is_masked_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_mask", [lambda text: text.replace("s3cret", "-")])
    database = open_database(f"sqlite:///{tmp_path / 'x.db'}")
    now = dt.datetime.now(dt.UTC)
    with transaction(database) as session:
        session.add(Experiment(id="a", name="one s3cret", created_at=now))
        session.execute(insert(Experiment), [{"id": key, "name": f"{key} s3cret", "created_at": now} for key in "bc"])
        session.execute(update(Experiment).where(Experiment.id == "c").values(name="more s3cret"))
    with read_only(database) as session:
        assert sorted(session.scalars(select(Experiment.name))) == ["b -", "more -", "one -"]


def test_a_name_that_is_allowed_is_allowed_as_a_key_and_another_one_beside_it_is_not() -> None:
    config = {"MYTOKEN": "abcdef123456", "OTHER_TOKEN": "abcdef654321"}
    found, names = redacted(config, allowed=frozenset({"MYTOKEN"}))
    assert found == {"MYTOKEN": "abcdef123456", "OTHER_TOKEN": REDACTED}
    assert names == ("OTHER_TOKEN",)


def test_what_is_no_text_passes_the_mask_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_mask", [lambda text: text.replace("secret", "***")])
    row = {"a": 1, "b": 2.5, "c": True, "d": b"secret", "e": None, "f": ["a secret", 3], "g": ("secret",)}
    assert redaction.masked(row) == row | {"f": ["a ***", 3], "g": ("***",)}
    monkeypatch.setattr(redaction, "_mask", [])
    assert redaction.masked(row) == row
