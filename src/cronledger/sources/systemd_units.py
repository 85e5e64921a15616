"""Unit files of systemd: their settings, and the words of their command lines."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cronledger.sources.imported import NotImportedError

_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " ",
    "\\": "\\", '"': '"', "'": "'",
}  # fmt: skip
_NUMBER = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|([0-7]{3})")
_TRUE = ("1", "yes", "y", "true", "t", "on")
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))", re.ASCII)


@dataclass(slots=True)
class Unit:
    """The settings of a unit: the values of each key, in order.

    `name`: such as `backup@db.timer`. `text`: its files.
    """

    name: str
    text: str = ""
    settings: dict[str, list[str]] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Read a unit file or a drop-in. An empty value removes those before it.

        Lines that systemd would ignore are ignored.
        """
        self.text += text
        for line in re.sub(r"\\\r?\n", " ", text).splitlines():
            key, equals, value = line.strip().partition("=")
            if not equals or key.startswith(("#", ";", "[")):
                continue
            values = self.settings.setdefault(key.strip(), [])
            if value.strip():
                values.append(value.strip())
            else:
                values.clear()

    def last(self, key: str) -> str | None:
        """Return the value that counts for a key with a single value."""
        values = self.all(key)
        return values[-1] if values else None

    def all(self, key: str) -> list[str]:
        return self.settings.get(key, [])

    def is_true(self, key: str) -> bool:
        return (self.last(key) or "").lower() in _TRUE

    def resolved(self, text: str) -> str:
        """Return `text` with its specifiers replaced.

        Raises NotImportedError for those that depend on the host.
        """
        stem, _, _ = self.name.rpartition(".")
        prefix, at, instance = stem.partition("@")
        known = {"%": "%", "n": self.name, "N": stem, "p": prefix}
        if at and instance:
            known |= {"i": instance, "I": instance.replace("-", "/")}

        def replaced(found: re.Match[str]) -> str:
            if found[1] not in known:
                raise NotImportedError(
                    f"the specifier {found[0]!r} depends on the host; write its value"
                )
            return known[found[1]]

        return re.sub(r"%(.?)", replaced, text)


def split_words(text: str) -> list[str]:
    """Return the words of a line as systemd reads it: quotes, and the escapes of C everywhere."""
    words: list[str] = []
    word: str | None = None
    quote, at = "", 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\":
            found = _NUMBER.match(text, at)
            if found:
                character = chr(int(found[1] or found[2] or found[3], 8 if found[3] else 16))
                at = found.end()
            elif text[at : at + 1] in _ESCAPES and at < len(text):
                character, at = _ESCAPES[text[at]], at + 1
            word = (word or "") + character
        elif character == quote:
            quote = ""
        elif not quote and character in "\"'":
            quote, word = character, word or ""
        elif not quote and character.isspace():
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + character
    if quote:
        raise NotImportedError(f"the quote {quote} in {text!r} has no end; add it")
    return words if word is None else [*words, word]


def expand(words: list[str], env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the words with the variables that systemd expands, and the names of unknown ones.

    A word that is only `$NAME` becomes one word for each word of the value.
    """
    expanded: list[str] = []
    unknown: list[str] = []

    def value(found: re.Match[str]) -> str:
        name = found[2] or found[3]
        if found[1]:
            return "$"
        if name not in env:
            unknown.append(name)
        return env.get(name, found[0])

    for word in words:
        found = _VARIABLE.fullmatch(word)
        if found and found[3] and found[3] in env:
            expanded += env[found[3]].split()
        else:
            expanded.append(_VARIABLE.sub(value, word))
    return expanded, unknown
