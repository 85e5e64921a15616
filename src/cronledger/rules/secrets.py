"""Finds values of a job that are probably secrets, and that the ledger would store."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cronledger.rules.problems import Problem

# A password that begins with $ is a variable of the shell.
_PASSWORD_IN_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s:@/?#]*:(?![$*])[^\s@/]+@", re.IGNORECASE)
STORED = "which the ledger stores"
_REMEDIES = {
    "env": 'write {env = "NAME"}, and set NAME in the environment of the replicas',
    "payload": "let the handler read it from the environment of the replica",
    "command": 'pass it in a variable of `env` whose value is {env = "NAME"}',
}
_ELSEWHERE = "move it to the environment of the replicas"


def is_secret_name(name: str, names: Collection[str]) -> bool:
    """Return whether `name` is one of `names` or ends with one, without regard to case or - and _.

    Such as DB_PASSWORD and X-Api-Key for the names `password` and `api_key`.
    """
    plain = name.casefold().replace("-", "_")
    return any(plain.endswith(one.casefold().replace("-", "_")) for one in names if one)


def has_password(text: str) -> bool:
    """Return whether `text` contains a URL with a password."""
    return _PASSWORD_IN_URL.search(text) is not None


def warnings(
    values: Mapping[str, Any], names: Collection[str], *, where: str | None, job: str | None
) -> Iterator[Problem]:
    """Yield a warning for each of these values that is probably a secret, by the name of its field.

    `names`: names of fields that contain secrets. `job`: the job whose values these are.
    """
    for root, value in values.items():
        for path, message in _found(value, names, root):
            word = path.removeprefix(f"{root}.").partition(".")[0]
            kind = root if root == "payload" else "env" if word in ("headers", "url") else word
            yield Problem(
                where=where, job=job, field=path, message=f"{message}, {STORED}",
                remedy=_REMEDIES.get(kind, _ELSEWHERE), warning=True,
            )  # fmt: skip


def _found(value: Any, names: Collection[str], path: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the message of each secret in a JSON value."""
    if isinstance(value, str):
        if has_password(value):
            yield path, "contains a URL with a password"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, str) and inner and is_secret_name(str(key), names):
                yield f"{path}.{key}", "is probably a secret"
            else:
                yield from _found(inner, names, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _found(inner, names, f"{path}[{number}]")
