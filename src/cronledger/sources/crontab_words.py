"""What the words of one crontab line mean: time fields, `%`, and a name for the job."""

import re
import shlex
from collections.abc import Container
from itertools import pairwise
from pathlib import PurePath

_RANGES = {
    "minute": (0, 59),
    "hour": (0, 23),
    "day of month": (1, 31),
    "month": (1, 12),
    "day of week": (0, 6),  # 7 is Sunday again
}
_NAMES = {
    "month": "janfebmaraprmayjunjulaugsepoctnovdec",
    "day of week": "sunmontuewedthufrisat",
}
_VALUE = r"[0-9]{1,4}|[A-Za-z]{3}"
_ITEM = re.compile(rf"(?:\*|({_VALUE})(?:-({_VALUE}))?)(/[0-9]{{1,4}})?")
_RANDOM = re.compile(r"([0-9]{0,4})~([0-9]{0,4})(/[0-9]{1,4})?")

_NAME_LENGTH = 48
_SEPARATORS = set(";|&()")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_EXTENSION = re.compile(r"\.(sh|bash|py|pl|php|rb|js)$")
# Commands that prepare or guard what the entry is about.
_GUARDS = {"test", "[", "[[", "cd", "command", "sleep", "true", "export", "set", "type", "which"}
_GUARDS |= {".", "source", "hash", "umask", "ulimit"}
_INTERPRETERS = {"sh", "bash", "dash", "ksh", "zsh", "perl", "python", "python3", "php", "ruby"}
# Words before a command: their options that take a value, and how many arguments they take.
_WRAPPERS: dict[str, tuple[set[str], int]] = {
    **dict.fromkeys(("if", "then", "else", "elif", "do", "while", "until", "!", "{"), (set(), 0)),
    **dict.fromkeys(("time", "exec", "env", "nohup", "chronic", "setsid"), (set(), 0)),
    "doas": ({"-u"}, 0),
    "flock": ({"-w", "-E"}, 1),
    "ionice": ({"-c", "-n"}, 0),
    "nice": ({"-n"}, 0),
    "runuser": ({"-u", "-g"}, 0),
    "sudo": ({"-u", "-g"}, 0),
    "systemd-cat": ({"-t", "-p"}, 0),
    "timeout": ({"-k", "-s"}, 1),
}


class NotCronError(ValueError):
    """Something no cron accepts, or which has no equivalent; `str()` names value and remedy."""


def time_fields(text: str) -> str:
    """Return five fields of cron in the words of a schedule: `a~b` becomes `H(a-b)`, `a-a` `a`.

    Raises NotCronError for what cron refuses or reads otherwise than we would: steps without a
    range, ranges that run backwards, and the letters of other schedulers (`L`, `W`, `#`, `?`).
    """
    fields = re.split(r"[ \t]+", text)
    return " ".join(_field(what, field) for what, field in zip(_RANGES, fields, strict=True))


def _field(what: str, field: str) -> str:
    if "~" in field and "," in field:
        raise NotCronError(f"{what} {field!r}: ~ in a list has no equivalent; split the entry")
    return ",".join(_item(what, item) for item in field.split(","))


def _item(what: str, item: str) -> str:
    low, high = _RANGES[what]
    step: str | None
    if random := _RANDOM.fullmatch(item):
        begin, end, step = random[1] or str(low), random[2] or str(high), random[3]
        same, written = int(begin) == int(end), f"H({begin}-{end}){step or ''}"
    elif found := _ITEM.fullmatch(item):
        begin, end, step = found[1], found[2], found[3]
        if begin is None or end is step is None:
            return item
        if end is None:
            raise NotCronError(
                f"{what} {item!r} is a step without a range, which crons read differently; "
                f"write {begin}-{high}{step}, or {begin} alone"
            )
        same, written = _value(what, begin) == _value(what, end), item
    else:
        raise NotCronError(
            f"{what} {item!r} is not valid cron; write numbers, names, ranges, lists and steps"
        )
    if _value(what, begin) > _value(what, end):
        raise NotCronError(
            f"{what} {item!r} runs backwards, which cron refuses; write {begin}-{high},{low}-{end}"
        )
    return begin if same else written


def _value(what: str, word: str) -> int:
    """The number of a value; names count from the low end of their field."""
    if word.isdigit():
        return int(word)
    at, odd = divmod(_NAMES.get(what, "").find(word.lower()), 3)
    if at < 0 or odd:
        raise NotCronError(f"{what} {word!r} is no name there; write a number")
    return at + _RANGES[what][0]


def split_percent(text: str) -> tuple[str, list[str]]:
    r"""Return the command and the lines of its standard input: `%` ends a line, `\%` is a `%`."""
    command, *lines = (part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", text))
    if lines and not lines[-1]:
        lines.pop()
    return command, lines


def printable(text: str) -> str:
    """Return `text` with every control character and lone surrogate written as an escape."""
    return "".join(
        char if char == "\t" or char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )


def job_name(file: str, command: str, taken: Container[str] = ()) -> str:
    """Return a name made of file and command, not in `taken`: `e2scrub-all`, `e2scrub-all-2`.

    It depends on nothing else, so importing the same crontab again gives the same names.
    """
    stem = "" if file == "-" else _slug(PurePath(file).stem)
    slug = _slug(" ".join(_significant(command))) or "job"
    if stem not in ("", "crontab") and not f"{slug}-".startswith(f"{stem}-"):
        slug = f"{stem}-{slug}"
    name = slug = slug[:_NAME_LENGTH].rstrip("-")
    number = 1
    while name in taken:
        number += 1
        name = f"{slug}-{number}"
    return name


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _significant(command: str) -> list[str]:
    """The program and up to two telling arguments of the first command that does the work."""
    candidates = [words for segment in _segments(command) if (words := _unwrap(segment))]
    program: list[str] = next(
        (found for words in candidates if (found := _program(words))),
        candidates[-1] if candidates else [],
    )
    arguments = (
        PurePath(word).name
        for before, word in pairwise(program)
        if re.match(r"[A-Za-z/.]", word) and not set(before) & set("<>")
    )
    names = [_EXTENSION.sub("", name) for name in arguments if name]
    return [_EXTENSION.sub("", PurePath(word).name) for word in program[:1]] + names[:2]


def _segments(command: str) -> list[list[str]]:
    """The simple commands of a shell line, as words."""
    plain = re.sub(r"\$\([^()]*\)|`[^`]*`", "", command)
    try:
        lexer = shlex.shlex(plain, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(lexer)
    except ValueError:  # quotes that do not close
        words = plain.split()
    segments: list[list[str]] = [[]]
    for word in words:
        if word and set(word) <= _SEPARATORS:
            segments.append([])
        else:
            segments[-1].append(word)
    return segments


def _unwrap(words: list[str]) -> list[str]:
    while words:
        head = PurePath(words[0]).name
        if _ASSIGNMENT.match(words[0]):
            words = words[1:]
        elif head in _WRAPPERS:
            options, arguments = _WRAPPERS[head]
            words = words[1:]
            while words and words[0].startswith("-"):
                words = words[2 if words[0] in options else 1 :]
            words = words[arguments:]
        else:
            return words
    return words


def _program(words: list[str]) -> list[str]:
    """`words` from the program or script on; empty when they only guard, or run a one-liner."""
    head = PurePath(words[0]).name
    if head in _GUARDS or not _slug(head):
        return []
    if head not in _INTERPRETERS or len(words) == 1:
        return words
    if words[1] in ("-c", "-e", "-r"):
        return []
    script = next((at for at, word in enumerate(words) if at and not word.startswith("-")), 0)
    return words[script:]
