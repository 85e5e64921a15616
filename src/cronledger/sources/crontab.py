"""Read a crontab as the jobs of a `cronledger.toml`, with notes on lines without an equivalent.

Call `detect_format`, `read_crontab`, then `crontab_toml.convert`. A line is blank, a comment, an
environment setting, or an entry. Every entry becomes one job or one note of kind `dropped`.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cronledger.rules import cron, durations, secrets
from cronledger.rules.cron_fields import REBOOT
from cronledger.sources import crontab_shell
from cronledger.sources.crontab_mail import Mail, addresses, read_mail, refused_addresses
from cronledger.sources.crontab_words import (
    NotCronError,
    job_name,
    split_percent,
    time_fields,
)
from cronledger.sources.imported import Kind, printable, secret_remark

Format = Literal["user", "system"]

SHELL = "/bin/sh"

_ENTRY = re.compile(r"(@[^ \t]+|(?:[^ \t]+[ \t]+){4}[^ \t]+)(?:[ \t]+(.*))?", re.DOTALL)
_SETTING = re.compile(
    r"""(?:"([^"=]+)"|'([^'=]+)'|([^ \t='"][^ \t=]*))[ \t]*=[ \t]*"""
    r"""(?:"([^"]*)"|'([^']*)'|([^"' \t].*?)?)[ \t]*""",
    re.DOTALL,
)
_UNLOGGED = re.compile(r"-(?:[nqs]+[ \t]+)?")
_FLAGS = re.compile(r"((?:-[nqs]+[ \t]+)+)(?=[^ \t])")
_USER = re.compile(r"[A-Za-z_][\w.-]*\$?(?:[:/][\w.-]+){0,2}")
_MACROS = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"]
_MAIL = {"MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING"}
_CRON_SETTINGS = _MAIL | {"CRON_TZ", "RANDOM_DELAY"}
# Names of users on most systems that are also commands, and so do not prove a user field.
_ALSO_COMMANDS = {"at", "backup", "git", "mail", "man", "news", "sync"}
# Comments that describe no job: about the file, about its columns, and disabled entries.
_LEGEND = re.compile(
    r"\bdom\b.*\bdow\b|\bmin(ute)?s?\b.*\bhours?\b|^[ \t|]*[.+*-]-{3,}|^([\d*,/~-]+\s+){4}\S+\s"
    r"|\buser(-?name)?\s+command\b|^@\w+\s|^[|\s]*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an import.

    `current_user`: the user of the replica. `as_user`: a command changes to the user of its entry,
    which must be known. `faithful`: runs may overlap. `secret_names`: names of variables that
    contain secrets. `observe`: cron keeps the entries, and reports their runs. `named_hosts`: the
    host of each crontab is known.
    """

    timezone: str = "UTC"
    current_user: str = "root"
    as_user: bool = False
    faithful: bool = False
    secret_names: Sequence[str] = ()
    observe: bool = False
    named_hosts: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A message about line `line` (from 1), whose content is `text`."""

    line: int
    text: str
    message: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class ImportedJob:
    """One entry. `command`: a string for /bin/sh -c, or an argv.

    `single`: cron itself never lets it overlap, so a faithful import does not either. `mail`: the
    recipients of MAILTO; None: no mail is sent. `user`: the user of the entry, if it is known.
    `before` and `line_command`: the text before the command, and the command as cron reads it.
    `shell`: the shell of its crontab.
    """

    line: int
    text: str
    name: str
    schedule: str
    timezone: str
    command: str | tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    jitter: str | None
    single: bool
    description: str | None
    mail: Mail | None = None
    user: str | None = None
    before: str = ""
    line_command: str = ""
    shell: str = SHELL


@dataclass(frozen=True, slots=True)
class Imported:
    """One crontab in `format`. `jobs` and `notes` have the order of their lines.

    `users`: those of the entries, without the user of the replica.
    """

    file: str
    format: Format
    jobs: tuple[ImportedJob, ...]
    notes: tuple[Note, ...]
    users: frozenset[str]


def detect_format(text: str, known_users: Iterable[str] = ()) -> Format:
    """Return `system` if the entries have a user field, otherwise `user`.

    A comment that names the columns decides. Otherwise the format is `system` if every entry has a
    known user before its command, and at least one of these users is not also a command.
    """
    users = {"root", *known_users}
    seen: set[str] = set()
    for line in (raw.strip() for raw in text.split("\n")):
        if line.startswith("#"):
            if re.search(r"\bdom\b.*\bdow\b", line):
                return "system" if re.search(r"\bdow\s+user", line) else "user"
        elif not _SETTING.fullmatch(line) and (entry := _ENTRY.fullmatch(line)):
            user, command = _partition(entry[2] or "")
            seen.add(user if command else "")
    return "system" if seen and seen <= users and seen - _ALSO_COMMANDS else "user"


def read_crontab(
    text: str,
    *,
    file: str,
    format: Format,
    options: Options,
    owner: str | None = None,
    taken: Iterable[str] = (),
    noted_users: Iterable[str] = (),
) -> Imported:
    """Read a crontab. The job names are unique, and different from `taken`.

    `owner`: the user of a `user` crontab, if it is known. `noted_users`: users that have a note in
    another crontab, and so need no further one.
    """
    reader = _Reader(
        file, format, options, owner, taken=set(taken), noted_users=frozenset(noted_users)
    )
    for number, raw in enumerate(text.split("\n"), 1):
        reader.line(number, raw.removesuffix("\r"))
    users = frozenset(reader.users)
    return Imported(file, format, tuple(reader.jobs), tuple(reader.notes), users)


def _partition(text: str) -> tuple[str, str]:
    """Return the first word of `text`, and the rest without the blanks between them."""
    word, *rest = re.split(r"[ \t]+", text, maxsplit=1)
    return word, "".join(rest)


class _Reader:
    """Reads the lines in order. Settings and comments affect the entries after them."""

    def __init__(
        self,
        file: str,
        format: Format,
        options: Options,
        owner: str | None,
        *,
        taken: set[str],
        noted_users: frozenset[str],
    ) -> None:
        self.file, self.format, self.options, self.owner = file, format, options, owner
        self.taken, self.noted_users = taken, noted_users
        self.users: set[str] = set()
        self.jobs: list[ImportedJob] = []
        self.notes: list[Note] = []
        self.env: dict[str, str] = {}
        self.comments: list[str] = []
        self.remarks: list[tuple[str, Kind]] = []

    def line(self, number: int, text: str) -> None:
        """Read one line. An entry adds either a job or exactly one `dropped` note."""
        bare = text.lstrip(" \t")
        if bare.startswith("#"):
            self.comments.append(bare.lstrip("#").strip())
            return
        self.remarks = []
        try:
            if re.search("[\0\ud800-\udfff]", bare):
                raise NotCronError("contains a NUL or is not UTF-8; encode the line as UTF-8")
            if setting := _SETTING.fullmatch(bare):
                groups = [group or "" for group in setting.groups()]
                self._set("".join(groups[:3]), "".join(groups[3:]))
            elif bare:
                self.jobs.append(self._job(number, text, bare))
        except NotCronError as why:
            self.remarks = [(str(why), "dropped")]
        self.notes += [Note(number, text, message, kind) for message, kind in self.remarks]
        self.comments = []

    def _remark(self, message: str, kind: Kind = "info", *, of_schedule: bool = False) -> None:
        """Add a note. If cron keeps the entry, only notes about its schedule count."""
        if of_schedule or not self.options.observe:
            self.remarks.append((message, kind))

    def _set(self, name: str, value: str) -> None:
        self.env[name] = value
        if secret := secret_remark(name, value, self.options.secret_names):
            self._remark(secret)
        if name in ("MAILTO", "MAILFROM"):
            self._set_mail(name, value)
        elif name in _MAIL:
            self._remark(f"{name} is omitted; mails are plain text in UTF-8", "changed")
        elif name == "RANDOM_DELAY" and not re.fullmatch(r"[0-9]{1,6}", value):
            self._remark(f"{value!r} is not a number of minutes; jitter is omitted", "changed")
        elif name == "SHELL" and not value:
            self._remark(f"SHELL is empty, so cron starts nothing; {SHELL} is used", "changed")
        elif name == "HOME" and not value.startswith("/"):
            self._remark(f"{value!r} is not an absolute path; cwd is omitted", "changed")
        elif name == "CRON_TZ":
            self._remark(
                "Debian's cron ignores CRON_TZ and uses the time zone of the host; the jobs below "
                "use this zone",
                of_schedule=True,
            )
        elif name == "LOGNAME":
            self._remark("cron overrides LOGNAME; here the command sees this value")
        elif name == "TZ":
            self._remark("TZ only changes the environment, as in cron; CRON_TZ sets the time zone")
        elif "$" in value:
            self._remark("cron does not expand variables; the value is kept unchanged")

    def _set_mail(self, name: str, value: str) -> None:
        if refused := refused_addresses(value):
            shown = ", ".join(repr(word) for word in refused)
            self._remark(f"{shown} is not an address; it is omitted", "changed")
        if name == "MAILFROM" or not addresses(value):
            return
        self._remark(
            "mail is sent only when a job begins to fail and when it recovers; cron sends each "
            "output, but here the ledger keeps the end of the output"
        )

    def _job(self, number: int, text: str, bare: str) -> ImportedJob:
        if unlogged := _UNLOGGED.match(bare):
            bare = bare[unlogged.end() :]
            self._remark("the leading - (do not log) is omitted; the ledger records every run")
        entry = _ENTRY.fullmatch(bare)
        if entry is None:
            raise NotCronError(
                "the line is neither NAME = value nor an entry; an entry has five time fields or a "
                "macro such as @daily, then a command"
            )
        schedule, single = self._schedule(entry[1])
        user, rest = self._user(entry[2] or "")
        rest, flagged = self._flags(rest)
        line, stdin = split_percent(rest)
        if not line.strip():
            raise NotCronError("the entry has no command; add one after the time fields")
        name = job_name(self.file, line, self.taken)
        timezone = self.env.get("CRON_TZ", "").removeprefix(":") or self.options.timezone
        try:
            spec = cron.parse(schedule, timezone=timezone, job=name)
        except cron.CronError as error:
            raise NotCronError(str(error)) from None
        self.taken.add(name)
        if secrets.has_password(line):
            self._remark(
                f"the command contains a URL with a password, {secrets.STORED}; pass it in a "
                'variable of `env` whose value is {env = "NAME"}'
            )
        self._note_user(user)
        for message, changed in crontab_shell.remarks(line):
            self._remark(message, "changed" if changed else "info")
        return ImportedJob(
            line=number,
            text=text,
            name=name,
            schedule=schedule,
            timezone=timezone,
            command=self._command(line, stdin, user),
            env=self._environment(line, user),
            cwd=self._home(),
            jitter=self._jitter(spec),
            single=single or flagged,
            description=self._description(user),
            mail=read_mail(self.env),
            user=user,
            before=text[: text.rindex(rest)],
            line_command=rest,
            shell=self.env.get("SHELL") or SHELL,
        )

    def _schedule(self, text: str) -> tuple[str, bool]:
        """Return the schedule, and whether cron itself prevents overlapping runs."""
        if text == REBOOT:
            if self.options.observe:
                raise NotCronError(
                    "@reboot names no time at which a report is expected; cron keeps the entry"
                )
            if not self.options.named_hosts:
                raise NotCronError(
                    "@reboot runs the job on each host that boots, and the host of this crontab is "
                    "not known; import it as HOST=FILE, or with --hosts"
                )
            return text, False
        if text in ("@every_minute", "@every_second"):
            return "* * * * *" if text == "@every_minute" else "@every 1s", False
        if re.fullmatch(r"@[0-9]+", text):
            self._remark(
                "cron counts these seconds from the end of a run; @every fires on a fixed grid"
            )
            return f"@every {text[1:]}s", True
        if text.startswith("@"):
            if text not in _MACROS:
                raise NotCronError(
                    f"{text!r} is not a macro of cron; use one of {', '.join(_MACROS)}"
                )
            return text, False
        if "~" in text:
            self._remark(
                "cron chooses ~ at random; H is a hash of the job's name, and never changes"
            )
        return time_fields(text), False

    def _user(self, rest: str) -> tuple[str | None, str]:
        user, command = self.owner, rest
        if self.format == "system":
            user, command = _partition(rest)
            if not _USER.fullmatch(user):
                raise NotCronError(
                    f"{user!r} is not a user name; add a user before the command, or import with "
                    "--user"
                )
        login = re.split("[:/]", user)[0] if user else None
        return login, command

    def _note_user(self, login: str | None) -> None:
        """Add a note at the first entry of a user who is not the user of the replica."""
        if login is None or login in (self.options.current_user, *self.users):
            return
        self.users.add(login)
        if login not in self.noted_users and not self.options.as_user:
            self._remark(
                f"cron runs the entries of {login} as this user, but a replica runs every command "
                f"as its own user; start a replica as {login}, or import with --as-user",
                "changed",
            )

    def _flags(self, rest: str) -> tuple[str, bool]:
        found = _FLAGS.match(rest)
        if found is None:
            return rest, False
        self._remark(
            f"{found[1].strip()} is omitted; mail is only sent about failures, and every run is "
            "recorded"
        )
        return rest[found.end() :], "s" in found[1]

    def _command(self, line: str, stdin: Sequence[str], user: str | None) -> str | tuple[str, ...]:
        shell = self.env.get("SHELL") or SHELL
        if stdin:
            self._remark(
                "an unescaped % ends the command and begins its standard input, which is written "
                "as printf … |; if a percent sign was intended, correct the command"
            )
            given = shlex.join(("printf", "%s\\n", *stdin))
            line, shell = f"{given} | {shlex.join((shell, '-c', line))}", SHELL
        if self._changes_user(user):
            home = self._home()
            kept = ("env", f"HOME={home}") if home else ()  # runuser sets that of the user
            return "runuser", "-u", str(user), "--", *kept, shell, "-c", line
        return line if shell == SHELL else (shell, "-c", line)

    def _home(self) -> str | None:
        """Return the home that the crontab sets, if it is an absolute path."""
        home = self.env.get("HOME", "")
        return home if home.startswith("/") else None

    def _changes_user(self, user: str | None) -> bool:
        return self.options.as_user and user not in (None, "root")

    def _environment(self, line: str, user: str | None) -> dict[str, str]:
        wanted = {
            name: value
            for name, value in self.env.items()
            if name not in _CRON_SETTINGS or re.search(rf"\b{name}\b", line)
        }
        return wanted | ({"LOGNAME": str(user)} if self._changes_user(user) else {})

    def _jitter(self, spec: cron.Cron) -> str | None:
        minutes = self.env.get("RANDOM_DELAY", "")
        if not re.fullmatch(r"0*[1-9][0-9]{0,5}", minutes):
            return None
        jitter = f"{int(minutes)}m"
        if durations.parse(jitter) >= spec.shortest_period:
            self._remark(
                f"RANDOM_DELAY={minutes} is not shorter than the time between two runs; jitter is "
                "omitted",
                "changed",
            )
            return None
        return jitter

    def _description(self, user: str | None) -> str | None:
        comments = self.comments
        legends = [at for at, comment in enumerate(comments) if _LEGEND.search(comment)]
        words = comments[legends[-1] + 1 :] if legends else list(comments)
        if user:
            words.append(f"(cron user: {user})")
        return printable(" ".join(words)) or None
