"""Read timers of systemd: each `OnCalendar=` becomes a job that runs what its service runs."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from cronledger.rules import cron, durations
from cronledger.rules.field_types import NO_LIMIT
from cronledger.sources import observed
from cronledger.sources.imported import (
    LEASE_HEADER,
    Entry,
    Kind,
    Note,
    NotImportedError,
    Table,
    lease,
    secret_remark,
    slug_of,
    unique,
)
from cronledger.sources.systemd_calendar import read_calendar, read_span
from cronledger.sources.systemd_units import Unit, expand, split_words

LONGEST_WAIT = "365d"
_ACCURACY = 60.0
_LONGEST_DELAY = 1e9
_AFTER_UNIT = ("OnUnitActiveSec", "OnUnitInactiveSec")
_AFTER_BOOT = ("OnBootSec", "OnStartupSec", "OnActiveSec", "OnClockChange", "OnTimezoneChange")
_PREFIX = re.compile(r"[@:+!|-]*")
_PLAIN = {
    "Description", "Documentation", "Type", "ExecStart", "ExecStartPre", "User", "Environment",
    "WorkingDirectory", "TimeoutStartSec", "TimeoutSec", "RuntimeMaxSec", "StandardOutput",
    "StandardError", "StandardInput", "SyslogIdentifier", "After", "Before", "Wants", "WantedBy",
    "DefaultDependencies", "RemainAfterExit", "TimeoutStopSec", "KillMode", "KillSignal",
    "RefuseManualStart", "RefuseManualStop", "Also", "Alias",
}  # fmt: skip
"""Settings of a service that a job has too, or that have no effect on one."""

HEADER = (
    'overlap = "skip": as in systemd, a run does not start while an earlier one still runs.',
    'Persistent=true is catch_up = "latest": the newest run that was missed starts later, after at '
    f"most {LONGEST_WAIT}. Otherwise missed runs do not start later.",
    "A time that a clock change skips does not run: dst_gap. One that it repeats runs the first "
    "time; systemd chooses one of the two.",
    "Systemd may start a run up to AccuracySec late, which is 1 minute by default. A replica starts"
    " it at its time, plus the jitter.",
    LEASE_HEADER,
)

OBSERVED_HEADER = (
    *observed.HEADER,
    "The comment of each job is a drop-in for its service. Write CRONLEDGER_DATABASE_URL into the "
    "EnvironmentFile that the drop-in names. Only the owner of this file should be able to read "
    "it. Then run `systemctl daemon-reload`. "
    f"{observed.PROGRAM} is the path of the program.",
)
_OF_THE_SYSTEM = "/etc/systemd/system", "/etc/cronledger/observe-environment"
_OF_USERS = "~/.config/systemd/user", "%h/.config/cronledger/observe-environment"


@dataclass(frozen=True, slots=True)
class Options:
    """`timezone`: that of the host. `current_user`: the user of the replica.

    `as_user`: a command changes to the user of its service, with runuser. `secret_names`: names of
    secret variables. `observe`: systemd keeps the timers, and their services report their runs.
    """

    timezone: str = "UTC"
    current_user: str = "root"
    as_user: bool = False
    secret_names: Sequence[str] = ()
    observe: bool = False


@dataclass(slots=True)
class _Reader:
    timer: Unit
    service: Unit
    place: str
    options: Options
    taken: set[str]
    notes: list[Note] = field(default_factory=list)
    wrapper: str = ""

    def note(self, message: str, kind: Kind = "info") -> None:
        self.notes.append(Note(message, kind))

    def jobs(self) -> dict[str, Table]:
        schedules = [*self._calendars(), *self._monotonic()]
        if not schedules:
            if not any(note.kind == "dropped" for note in self.notes):
                raise NotImportedError("the timer has no OnCalendar; add one")
            return {}
        if self.options.observe:
            return self._observed(schedules)
        if len(schedules) > 1:
            self.note(
                f"the timer has {len(schedules)} schedules, so it becomes {len(schedules)} jobs, "
                "which may run beside each other",
                "changed",
            )
        work = self._work()
        jobs: dict[str, Table] = {}
        for schedule in schedules:
            name = unique(slug_of(self.timer.name.removesuffix(".timer")) or "job", self.taken)
            jobs[name] = {
                "description": self.service.last("Description") or self.timer.last("Description"),
                **schedule,
                **self._jitter(schedule),
                **work,
                "stale_timeout": lease(schedule["schedule"])
                if work["run_timeout"] == NO_LIMIT
                else None,
                "overlap": "skip",
            }
            self.taken.add(name)
        return jobs

    # --- a timer that stays --------------------------------------------------------------------

    def _observed(self, schedules: Sequence[Table]) -> dict[str, Table]:
        slug = slug_of(self.timer.name.removesuffix(".timer")) or "job"
        description = self.service.last("Description") or self.timer.last("Description")
        late = durations.parse(observed.GRACE) + timedelta(seconds=sum(
            min(read_span(self.timer.last(key) or default), _LONGEST_DELAY)
            for key, default in (("AccuracySec", "1min"), ("RandomizedDelaySec", "0"))
        ))  # fmt: skip
        limit = self._limit()
        jobs: dict[str, Table] = {}
        for schedule in schedules:
            name = unique(slug, self.taken)
            jobs[name] = {
                "description": description, **schedule, "grace": durations.format(late),
                "run_timeout": None if limit == NO_LIMIT else limit,
            }  # fmt: skip
            self.taken.add(name)
        self.wrapper = self._drop_in(next(iter(jobs)))
        return jobs

    def _drop_in(self, name: str) -> str:
        """Return a drop-in for the service with the wrapper before its last command."""
        *others, last = self._starts()
        found = _PREFIX.match(last)
        marks = found[0] if found else ""
        command = last[len(marks) :]
        if "@" in marks:
            self.note(
                "the prefix @ is omitted: the wrapper starts the command by its path", "changed"
            )
            command = re.sub(r"^(\S+)\s+\S+", r"\1", command)
        if ";" in split_words(command):
            raise NotImportedError(
                f"the line {last!r} contains several commands; write each on a line of its own"
            )
        if "|" in marks:
            command = f"/bin/sh -c {shlex.quote(command)}"
        if others:
            self.note(
                f"{self.service.name} has {len(others) + 1} commands; the drop-in wraps the last, "
                "so no run is reported if an earlier one fails",
                "changed",
            )
        kept = "".join(mark for mark in marks if mark not in "@|")
        wrapped = f"{kept}{observed.PROGRAM} observe {name} -- {command}"
        units, settings = _OF_USERS if "systemd/user" in self.place else _OF_THE_SYSTEM
        return "\n".join([
            f"{units}/{self.service.name}.d/cronledger.conf:",
            "[Service]",
            f"EnvironmentFile={settings}",
            "ExecStart=",
            *(f"ExecStart={line}" for line in [*others, wrapped]),
        ])  # fmt: skip

    def _starts(self) -> list[str]:
        """Return the commands of the service as written. Raises NotImportedError without one."""
        if not self.service.settings:
            raise NotImportedError(
                f"{self.service.name} was not found beside the timer; name its directory too"
            )
        if not (lines := self.service.all("ExecStart")):
            raise NotImportedError(f"{self.service.name} has no ExecStart; add one")
        return lines

    # --- the timer ---------------------------------------------------------------------------

    def _calendars(self) -> Iterable[Table]:
        late: Table = {"catch_up": "skip"}
        if self.timer.is_true("Persistent"):
            late = {"catch_up": "latest", "catch_up_window": LONGEST_WAIT}
        for text in self.timer.all("OnCalendar"):
            try:
                yield {**self._calendar(self.timer.resolved(text)), **late}
            except (NotImportedError, cron.CronError) as why:
                self.note(f"OnCalendar={text}: {why}", "dropped")

    def _calendar(self, text: str) -> Table:
        event = read_calendar(text, changes=self.options.timezone not in ("UTC", "Etc/UTC"))
        zone = event.zone or self.options.timezone
        day_or = False if event.both else None
        cron.parse(event.schedule, timezone=zone, day_or=not event.both)
        changes = zone not in ("UTC", "Etc/UTC")
        return {
            "schedule": event.schedule,
            "timezone": zone,
            "day_or": day_or,
            "dst_gap": "skip" if changes else None,
        }

    def _monotonic(self) -> Iterable[Table]:
        repeats = [(key, text) for key in _AFTER_UNIT for text in self.timer.all(key)]
        for key, text in repeats:
            seconds = read_span(text)
            if seconds < 1 or seconds % 1:
                self.note(f"{key}={text} is not a number of whole seconds; round it", "dropped")
                continue
            if not self.options.observe:
                self.note(
                    f"{key}={text} counts from the last run; here the job fires on a fixed grid "
                    "since 1970"
                )
            yield {"schedule": f"@every {int(seconds)}s", "catch_up": "skip"}
        for key in _AFTER_BOOT:
            if values := self.timer.all(key):
                self.note(
                    f"{key}={values[-1]} is not imported; to run the job at each boot of a host, "
                    'declare a job with schedule = "@reboot" and every',
                    "info" if repeats and key.endswith("Sec") else "dropped",
                )

    def _jitter(self, schedule: Table) -> Table:
        for key, told in (
            ("WakeSystem", "a replica does not wake its host"),
            ("FixedRandomDelay", "the jitter of each run is another one"),
        ):
            if self.timer.is_true(key):
                self.note(f"{key} is omitted; {told}", "changed")
        if read_span(self.timer.last("AccuracySec") or "1min") > _ACCURACY:
            self.note(
                f"AccuracySec={self.timer.last('AccuracySec')} lets systemd start a run late; a "
                "replica starts it at its time"
            )
        text = self.timer.last("RandomizedDelaySec") or "0"
        delay = timedelta(seconds=min(read_span(text), _LONGEST_DELAY))
        if not delay:
            return {}
        spec = cron.parse(str(schedule["schedule"]), day_or=schedule.get("day_or") is not False)
        if delay < spec.shortest_period:
            return {"jitter": f"{delay.total_seconds():g}s"}
        self.note(
            f"RandomizedDelaySec={text} is not shorter than the time between two runs; jitter is "
            "omitted",
            "changed",
        )
        return {}

    # --- the service -------------------------------------------------------------------------

    def _work(self) -> Table:
        service = self.service
        self._starts()
        env = self._environment()
        commands = [
            command
            for key in ("ExecStartPre", "ExecStart")
            for text in service.all(key)
            for command in self._commands(service.resolved(text), env)
        ]
        self._note_service()
        return {
            "command": self._as_user(_joined(commands)),
            "env": env or None,
            "cwd": self._cwd(),
            "run_timeout": self._limit(),
        }

    def _environment(self) -> dict[str, str]:
        env: dict[str, str] = {}
        for text in self.service.all("Environment"):
            for word in split_words(self.service.resolved(text)):
                name, equals, value = word.partition("=")
                if not equals or not name:
                    self.note(f"Environment: {word!r} is not NAME=value; omitted", "changed")
                    continue
                env[name] = value
                if remark := secret_remark(name, value, self.options.secret_names):
                    self.note(remark)
        return env

    def _commands(self, text: str, env: dict[str, str]) -> Iterable[tuple[list[str], bool]]:
        """Yield the words of each command of a line, and whether its failure is ignored."""
        prefix = _PREFIX.match(text)
        marks = prefix[0] if prefix else ""
        words = split_words(text[len(marks) :])
        if "+" in marks or "!" in marks:
            self.note(f"the prefix {marks} of a command is omitted; it runs as the user", "changed")
        if "|" in marks:
            words = ["/bin/sh", "-c", shlex.join(words)]
        if not words:
            raise NotImportedError(f"the command {text!r} is empty; correct it")
        while words:
            end = words.index(";") if ";" in words else len(words)
            command, words = words[:end], words[end + 1 :]
            if "@" in marks:
                del command[1:2]
            if ":" not in marks:
                command, unknown = expand(command, env)
                if unknown:
                    names = ", ".join(dict.fromkeys(unknown))
                    self.note(f"{names} is not in Environment, so it is not expanded", "changed")
            if not command or not command[0]:
                raise NotImportedError(f"the command {text!r} is empty; correct it")
            yield command, "-" in marks

    def _cwd(self) -> str | None:
        text = self.service.resolved(self.service.last("WorkingDirectory") or "").removeprefix("-")
        if text == "~":
            self.note("WorkingDirectory=~ is omitted; write the path", "changed")
            return None
        return text or None

    def _limit(self) -> str:
        keys = ["RuntimeMaxSec"]
        if self.service.last("Type") == "oneshot":
            keys += ["TimeoutStartSec", "TimeoutSec"]
        for key in keys:
            text = self.service.last(key)
            if text not in (None, "infinity", "0") and (seconds := read_span(text)) > 0:
                return f"{seconds:g}s" if seconds < 10**9 else NO_LIMIT
        return NO_LIMIT

    def _as_user(self, command: str | list[str]) -> str | list[str]:
        user = self.service.resolved(self.service.last("User") or "root")
        if user == self.options.current_user or "systemd/user" in self.place:
            return command
        if not self.options.as_user:
            self.note(
                f"systemd runs the service as {user}, but a replica runs every command as its own "
                f"user; start a replica as {user}, or import with --as-user",
                "changed",
            )
            return command
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        return words if user == "root" else ["runuser", "-u", user, "--", *words]

    def _note_service(self) -> None:
        kind = self.service.last("Type") or "simple"
        if kind not in ("simple", "exec", "oneshot", "idle"):
            self.note(
                f"Type={kind}: the processes that a command leaves are ended when it exits; run "
                "the work in the foreground",
                "changed",
            )
        omitted = [key for key, values in self.service.settings.items() if values]
        omitted = sorted(key for key in omitted if key not in _PLAIN and not key.startswith("X-"))
        if omitted:
            self.note(
                f"{', '.join(omitted)}: omitted; set what is needed on the service of the replica",
                "changed",
            )


def _joined(commands: Sequence[tuple[list[str], bool]]) -> str | list[str]:
    """Return one command that runs all of them in order, up to the first that fails."""
    ((words, ignored), *others) = commands
    if not others and not ignored:
        return words
    lines = ((shlex.join(words), ignored) for words, ignored in commands)
    return " && ".join(f"{{ {line} || :; }}" if ignored else line for line, ignored in lines)


def read_timer(
    timer: Unit, service: Unit, *, place: str, options: Options, taken: set[str]
) -> Entry:
    """Return the jobs of a timer and of the service that it starts. Their names join `taken`."""
    reader = _Reader(timer, service, place, options, taken)
    text = f"{timer.text.rstrip()}\n\n{service.text.rstrip()}".strip()
    entry = Entry(place, text)
    try:
        jobs = reader.jobs()
    except NotImportedError as why:
        reader.note(str(why), "dropped")
        jobs = {}
    return replace(
        entry, jobs=jobs, notes=tuple(dict.fromkeys(reader.notes)), wrapper=reader.wrapper
    )
