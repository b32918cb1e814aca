"""Secrets, which must neither be stored nor leave the machine: keys, tokens and passwords, recognised by name or form.

looks_secret("HF_TOKEN")                       a name of a variable, a key of JSON, a parameter, a header, an option
literals("https://me:pass@host/?api_key=abc")  the secrets that stand in a text
redacted(configuration)                        JSON without either
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

REDACTED = "<redacted>"
ENVIRONMENT = "environment"  # the key under which a configuration holds environment variables
NOT_SECRET = (
    "INTERLACE_NOT_SECRET"  # the environment variable that names values that are not secrets, whatever they look like
)
_PROSE = frozenset(("content", "turns"))  # of a plan: prompts, which are data
_VARIABLE_NAME = "api_key_env"  # a key whose value is a name, and no secret
_REFERENCE = re.compile(r"\$\{[^}]*\}")  # to where the secret is: itself none

_SECRET_WORDS = frozenset(
    "APIKEY APIKEYS APITOKEN AUTH AUTHORIZATION BEARER COOKIE CREDENTIAL CREDENTIALS CREDS DSN JWT PASSCODE PASSKEY"
    " PASSPHRASE PASSWD PASSWORD PASSWORDS PAT SECRET SECRETS TOKEN WEBHOOK WEBHOOKS".split()
)
_SECRET_ENDS = ("APIKEY", "PASSWORD", "PASSWD", "SECRET", "TOKEN", "WEBHOOK")  # of a word: MYTOKEN
_SECRET_LAST = frozenset("KEY KEYS PASS PWD SIG SIGNATURE".split())  # as a name's last word only
_AFTER = frozenset("B BASE DEV FILE HEX ID LIVE PEM PROD RO RW TEST".split())  # words that may follow that: KEY_B64
_NOT_SECRET = frozenset(("PWD",))  # the shell's working directory

# A setting and no secret, whatever its name: a number, a truth, nothing, a file of this machine.
_PLAIN = re.compile(
    r"[-+]?[\d.]{0,9}(e[-+]?\d+)?|true|false|yes|no|on|off|none|null|auto|(~|\.{1,2})?/.*", re.IGNORECASE
)
_CREDENTIAL = r"[^\s\"'<>|(){}\[\]\\,;&#]{6,}"
_ISSUED = re.compile(  # keys as their issuers write them
    r"(?<![A-Za-z0-9])(?:(?:sk|pk|rk|gsk|xai|nvapi|tgp|fw|r8|hf|npm|dop_v1|gh[opsur]|github_pat|glpat|xox[a-z]|pypi)[-_]"
    r"(?=[\w-]*[\dA-Z])[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}[\w.-]*"
    r"|ya29\.[\w-]{20,}|SG\.[\w-]{16,}\.[\w-]{16,}|wandb_v1_\w{16,}|EAAC\w{20,}|AGE-SECRET-KEY-1\w{20,}"
    r"|(?:bot)?\d{8,10}:AA[\w-]{33})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
    # Addresses that whoever knows them may post to: their path is the secret.
    r"|https?://(?:hooks\.[^\s/]+|ntfy\.sh|(?:www\.)?hc-ping\.com)/[^\s\"']+"
    r"|https?://[^\s/\"']+/(?:[\w.@-]+/){0,8}(?:webhook(?:s|b2)?|with/key)/[^\s\"']+"
)
_QUERY = re.compile(rf"[?&](code|sid|session_?id)=({_CREDENTIAL})", re.IGNORECASE)  # secrets in addresses only
_USER_INFO = re.compile(r"(?:(?:https?|wss?|ftps?|socks\w*)://([^\s/@'\"]+)|\w+://[^\s/@:'\"]*:([^\s/@'\"]+))@")
_ASSIGNED = re.compile(  # name=value, name: value, --name value
    rf"(?:(?<![\w-])--?([A-Za-z][\w-]*)[=\s]\s*|([A-Za-z][\w-]*)[\"']?\s*[=:]\s*)[\"']?(?:(?:Bearer|Basic|Token)\s+)?"
    rf"(?=({_CREDENTIAL}))",  # looked at, not taken: a name may stand in another's value
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(?i:Bearer\s+([\w.~+/=-]{6,}))|\b(?i:Basic)\s+(?=[a-z]*[\dA-Z+/=])([\w+/]{8,}=*)")
_PASSWORD_OPTION = re.compile(r"\b(?:sshpass\s+-p\s*|(?:mysql|mariadb)\w*\s(?:.*\s)?-p)[\"']?([^\s'\"]{4,})")
_USER_OPTION = re.compile(r"(?:^|\s)(?:-u|--user|--proxy-user)[=\s]*[\"']?([^\s:'\"/]+:[^\s'\"/]+)")


_mask: list[Callable[[str], str]] = []


def mask_rows_with(mask: Callable[[str], str]) -> None:
    """Pass every text that this process writes into a database from now on through this function."""
    _mask[:] = [mask]


_WITHOUT_TEXT = frozenset((int, float, bool, bytes, type(None)))


def masked(value: Any) -> Any:
    """A statement's parameters, of whatever nesting, without what the process must not show."""
    if not _mask or type(value) in _WITHOUT_TEXT:
        return value
    if isinstance(value, str):
        return _mask[0](value)
    if isinstance(value, Mapping):
        return {key: masked(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([each if type(each) in _WITHOUT_TEXT else masked(each) for each in value])
    return value


def looks_secret(name: str) -> bool:
    """True if the name is that of a key, a token or a password."""
    words = re.findall(r"[A-Z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper())
    if not words or name.upper() in _NOT_SECRET:
        return False
    last = next((word for word in reversed(words) if word not in _AFTER), words[0])
    return (
        any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDS) for word in words)
        or last in _SECRET_LAST
        or (last.endswith("KEY") and last not in _SECRET_LAST and len(last) > len("TURKEY"))
    )


def allowed_by(environ: Mapping[str, str]) -> frozenset[str]:
    """The names that a user has declared to be no secrets, each without the key that it stands below."""
    return frozenset(name.rpartition(".")[2] for name in re.findall(r"[^\s,]+", environ.get(NOT_SECRET, "")))


def is_plain(value: str) -> bool:
    """True if the value is a number, a boolean or a path, and so not a secret whatever its name."""
    return _PLAIN.fullmatch(value.strip()) is not None


def literals(text: str, *, named: bool = True, allowed: frozenset[str] = frozenset()) -> list[str]:
    """The secrets that stand in a text: issued keys, passwords of addresses, what a secret's name is given.

    Args:
        named: look for names as well, as in an address, a command or a header; not in prose.
        allowed: names that hold no secret, whatever they look like.
    """
    bare = _REFERENCE.sub("\0", text)
    found = [match.group() for match in _ISSUED.finditer(bare)]
    found += [match.group(1) or match.group(2) for match in _USER_INFO.finditer(bare)]
    if named:
        found += _named(bare, allowed)
    return list(dict.fromkeys(each for each in found if each and "\0" not in each))


def _named(text: str, allowed: frozenset[str]) -> Iterator[str]:
    for match in _ASSIGNED.finditer(text):
        name, value = match.group(1) or match.group(2), match.group(3)
        if looks_secret(name) and name not in allowed and not is_plain(value):
            yield value
    for match in _QUERY.finditer(text):
        if match.group(1) not in allowed and not is_plain(match.group(2)):
            yield match.group(2)
    yield from (match.group(1) or match.group(2) for match in _BEARER.finditer(text))
    yield from _PASSWORD_OPTION.findall(text)
    yield from _USER_OPTION.findall(text)


def literals_under(name: str, value: Any) -> list[str]:
    """The secrets in a JSON value that stands under a key: by the key's name, or by their own form."""
    if isinstance(value, Mapping):
        return [each for key, inner in value.items() for each in literals_under(name_below(name, str(key)), inner)]
    if isinstance(value, list | tuple):
        return [each for inner in value for each in literals_under(name, inner)]
    if not isinstance(value, str) or name == _VARIABLE_NAME:
        return []
    named = re.fullmatch(_CREDENTIAL, value.strip()) is not None and looks_secret(name)
    if named and not is_plain(value) and not _REFERENCE.search(value):
        return [value.strip()]
    return literals(value)


def name_below(outer: str, inner: str) -> str:
    """The name that says whether a value is a secret: its own, or that of the object in which it stands."""
    return outer if looks_secret(outer) and not looks_secret(inner) else inner


def redacted(value: Any, *, allowed: frozenset[str] = frozenset()) -> tuple[Any, tuple[str, ...]]:
    """JSON values with secrets replaced, and the names of the keys whose values were.

    Args:
        allowed: names that hold no secret, whatever they look like.
    """
    names: list[str] = []
    return _walk(value, "", names, allowed), tuple(dict.fromkeys(names))


def _walk(value: Any, name: str, names: list[str], allowed: frozenset[str]) -> Any:
    if isinstance(value, list | tuple):
        return [_walk(each, name, names, allowed) for each in value]
    if isinstance(value, Mapping):
        inside = name == ENVIRONMENT
        return {
            key: _variable(key, each, names, allowed) if inside else _walk(each, name_below(name, key), names, allowed)
            for key, each in value.items()
        }
    if not isinstance(value, str) or name in _PROSE or name in allowed:
        return value
    for secret in literals_under(name, value):
        names.append(name)
        value = value.replace(secret, REDACTED)
    return value


def _variable(name: str, value: Any, names: list[str], allowed: frozenset[str]) -> Any:
    """A variable's value, or what stands in place of it."""
    if not isinstance(value, str) or value in ("", REDACTED) or _REFERENCE.fullmatch(value) or name in allowed:
        return value
    if not looks_secret(name) and not literals(value):
        return value
    names.append(name)
    return REDACTED
