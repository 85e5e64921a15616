"""Read manifests of Kubernetes: each CronJob becomes a job that runs the command of its pod."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cronledger.rules import cron
from cronledger.rules.field_types import NO_LIMIT
from cronledger.sources import observed, robfig
from cronledger.sources.imported import (
    LEASE_HEADER,
    Entry,
    Import,
    Kind,
    Note,
    NotImportedError,
    Source,
    Table,
    lease,
    secret_remark,
    slug_of,
    unique,
)
from cronledger.sources.yaml_documents import Part, read_documents, written

DEFAULT_BACKOFF_LIMIT = 6
LONGEST_WAIT = "365d"
"""Without startingDeadlineSeconds, a missed run starts however late it is."""
MOST_ATTEMPTS = 10_000
_BACKOFF = ("10s", "20s", "40s", "80s", "160s", "320s", "6m")
_OVERLAP = {"Allow": "allow", "Forbid": "wait", "Replace": "replace"}
_UTC = ("UTC", "Etc/UTC")
_REFERENCE = re.compile(r"\$(\$|\(([^()$]+)\))")
_SECOND_LIMIT = 10

HEADER = (
    "A replica runs the command of the pod as a process: it must have the programs of the image, "
    "and the variables that the notes name. No pod is started.",
    "Schedules without timeZone are in the zone of kube-controller-manager, which is UTC in most "
    "clusters: override it with --timezone. A time that a clock change skips does not run, and one "
    "that it repeats runs twice: dst_gap and dst_fold.",
    "overlap: concurrencyPolicy Allow, Forbid and Replace are allow, wait and replace.",
    "startingDeadlineSeconds is grace. Without it, the newest missed run starts when it can: "
    f'catch_up = "latest", for at most {LONGEST_WAIT}.',
    "backoffLimit is max_attempts - 1. Work with retries runs again when its replica is lost, as "
    "in Kubernetes: allow_stale_reentry.",
    LEASE_HEADER,
)

OBSERVED_HEADER = (
    *observed.HEADER,
    "The comment of each job is a patch for its CronJob, for `kubectl patch --patch-file` or "
    "kustomize. The image must contain the program cronledger. The Secret cronledger must contain "
    "the connection string under the key url. A pod does not keep its spool: without a volume for "
    "CRONLEDGER_SPOOL_DIR, a report that cannot be delivered within 5 s is lost.",
)


@dataclass(frozen=True, slots=True)
class Options:
    """`timezone`: that of schedules without one. `secret_names`: names of secret variables.

    `observe`: Kubernetes keeps the CronJobs, and their pods report their runs.
    """

    timezone: str = "UTC"
    secret_names: Sequence[str] = ()
    observe: bool = False


def read_manifests(files: Iterable[tuple[str, str]], options: Options | None = None) -> Import:
    """Return the jobs of the CronJobs in these files, which are pairs of name and text.

    Raises RefusedError if a text is not YAML.
    """
    options = options or Options()
    taken: set[str] = set()
    sources = []
    for file, text in files:
        parts = [part for part in read_documents(text, items="items") if _is_cron_job(part.value)]
        entries = [_Reader(part, options, taken).entry(file) for part in parts]
        sources.append(Source(file, tuple(entries)))
    header = OBSERVED_HEADER if options.observe else HEADER
    return Import("kubernetes", tuple(sources), header)


def _is_cron_job(value: object) -> bool:
    return isinstance(value, dict) and value.get("kind") == "CronJob"


_T = TypeVar("_T", str, int, bool, dict[str, Any], list[Any])
_WORDS: dict[type, str] = {
    str: "a text", int: "a whole number", bool: "true or false", dict: "a mapping", list: "a list"
}  # fmt: skip


def take(table: Mapping[str, Any], key: str, kind: type[_T], default: _T, where: str = "") -> _T:
    """Return a value of this type, or the default if it is missing. Raises NotImportedError."""
    value = table.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise NotImportedError(f"{where}{key} is not {_WORDS[kind]}; correct it")
    return value


@dataclass(slots=True)
class _Reader:
    """Reads one CronJob, and collects the notes."""

    part: Part
    options: Options
    taken: set[str]
    notes: list[Note] = field(default_factory=list)
    wrapper: str = ""

    def entry(self, file: str) -> Entry:
        place = f"{file}:{self.part.line}"
        try:
            name, table = self._job()
        except NotImportedError as why:
            return Entry(place, self.part.text, {}, (Note(str(why), "dropped"),))
        self.taken.add(name)
        return Entry(place, self.part.text, {name: table}, tuple(self.notes), self.wrapper)

    def _note(self, message: str, kind: Kind = "info") -> None:
        self.notes.append(Note(message, kind))

    def _job(self) -> tuple[str, Table]:
        metadata = take(self.part.value, "metadata", dict, {})
        spec = take(self.part.value, "spec", dict, {})
        job = take(take(spec, "jobTemplate", dict, {}), "spec", dict, {}, "jobTemplate.")
        pod = take(take(job, "template", dict, {}), "spec", dict, {}, "template.")
        namespace = take(metadata, "namespace", str, "default")
        words = take(metadata, "name", str, "") or take(metadata, "generateName", str, "job")
        if namespace != "default":
            words = f"{namespace}-{words}"
        name = unique(slug_of(words) or "job", self.taken)
        if self.options.observe:
            self.wrapper = self._patch(name, metadata, pod)
            return name, {**self._schedule(spec, name), **self._limits(spec, job)}
        schedule, attempts = self._schedule(spec, name), self._attempts(job)
        is_long = attempts["run_timeout"] == NO_LIMIT
        return name, {
            **schedule,
            **self._work(pod),
            **self._lateness(spec),
            **attempts,
            "stale_timeout": lease(schedule.get("schedule")) if is_long else None,
        }

    def _schedule(self, spec: Mapping[str, Any], name: str) -> Table:
        text = take(spec, "schedule", str, "")
        if not text.strip():
            raise NotImportedError("spec.schedule is missing; add one such as '0 5 * * *'")
        found = robfig.read_schedule(text.strip())
        named = take(spec, "timeZone", str, "")
        if found.zone is not None and named:
            raise NotImportedError(
                f"schedule {text!r} has a zone beside timeZone {named!r}; remove one of them"
            )
        zone = named or found.zone or self.options.timezone
        try:
            cron.parse(found.text, timezone=zone, job=name)
        except cron.CronError as error:
            raise NotImportedError(str(error)) from None
        if found.every and not self.options.observe:
            self._note("@every counts from the creation of the CronJob; here it fires on a fixed "
                       "grid since 1970")  # fmt: skip
        changes = zone not in _UTC and not found.every
        clock = {"dst_gap": "skip", "dst_fold": "both"} if changes else {}
        if not take(spec, "suspend", bool, False):
            return {"schedule": found.text, "timezone": zone, **clock}
        self._note(
            "the CronJob is suspended, so the job has no schedule; to resume it, add schedule = "
            f"{found.text!r}",
            "changed",
        )
        return {"timezone": zone}

    def _lateness(self, spec: Mapping[str, Any]) -> Table:
        policy = take(spec, "concurrencyPolicy", str, "Allow")
        if policy not in _OVERLAP:
            known = ", ".join(_OVERLAP)
            raise NotImportedError(f"concurrencyPolicy {policy!r} is unknown; use {known}")
        deadline = take(spec, "startingDeadlineSeconds", int, -1)
        late: Table = {"catch_up": "latest", "catch_up_window": LONGEST_WAIT}
        if deadline >= 0:
            late = {"grace": f"{deadline}s", "catch_up": "skip"}
        if 0 <= deadline < _SECOND_LIMIT:
            self._note(
                f"startingDeadlineSeconds {deadline} is less than 10, so Kubernetes may never "
                f"start it; here it may start {deadline} s late"
            )
        return {"overlap": _OVERLAP[policy], **late}

    def _attempts(self, job: Mapping[str, Any]) -> Table:
        retries = take(job, "backoffLimit", int, DEFAULT_BACKOFF_LIMIT)
        seconds = take(job, "activeDeadlineSeconds", int, 0)
        for key in ("parallelism", "completions"):
            if take(job, key, int, 1) != 1:
                self._note(f"{key} is not 1; the job runs its command once", "changed")
        if job.get("podFailurePolicy") is not None:
            self._note("podFailurePolicy is omitted; see retry_on and never_retry_on", "changed")
        if retries < 0 or seconds < 0:
            raise NotImportedError("backoffLimit and activeDeadlineSeconds cannot be negative")
        if retries >= MOST_ATTEMPTS:
            retries = MOST_ATTEMPTS - 1
            self._note(f"backoffLimit is more than {retries}; this is the most", "changed")
        limit: Table = {"run_timeout": f"{seconds}s" if seconds else NO_LIMIT}
        if not retries:
            return limit
        if seconds:
            self._note(
                f"activeDeadlineSeconds {seconds} bounds all attempts together; run_timeout bounds "
                "each of them",
                "changed",
            )
        again = {"max_attempts": retries + 1, "retry_backoff": list(_BACKOFF[:retries])}
        return {**limit, **again, "allow_stale_reentry": True}

    # --- a CronJob that stays ------------------------------------------------------------------

    def _limits(self, spec: Mapping[str, Any], job: Mapping[str, Any]) -> Table:
        deadline = take(spec, "startingDeadlineSeconds", int, -1)
        seconds = take(job, "activeDeadlineSeconds", int, 0)
        return {
            "grace": f"{deadline}s" if deadline > 0 else observed.QUEUED,
            "run_timeout": f"{seconds}s" if seconds > 0 else None,
        }

    def _patch(self, name: str, metadata: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
        """Return a patch that puts the wrapper before the command of the first container."""
        container, *others = take(pod, "containers", list, []) or [None]
        if not isinstance(container, dict) or not (command := self._texts(container, "command")):
            self._note(
                "the first container has no command, so its image decides what runs; write the "
                f"command of the image after: cronledger observe {name} --",
                "changed",
            )
            return ""
        if others:
            self._note(
                f"the pod has {len(others) + 1} containers; the patch wraps the first one",
                "changed",
            )
        secret = {"name": "cronledger", "key": "url"}
        patched = {
            "name": container.get("name"),
            "command": ["cronledger", "observe", name, "--", *command],
            "env": [{"name": "CRONLEDGER_DATABASE_URL", "valueFrom": {"secretKeyRef": secret}}],
        }
        template = {"template": {"spec": {"containers": [patched]}}}
        named = {key: metadata[key] for key in ("name", "namespace") if metadata.get(key)}
        return written({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": named,
            "spec": {"jobTemplate": {"spec": template}},
        })  # fmt: skip

    # --- the pod -----------------------------------------------------------------------------

    def _work(self, pod: Mapping[str, Any]) -> Table:
        containers = take(pod, "containers", list, [])
        if len(containers) != 1 or not isinstance(containers[0], dict):
            raise NotImportedError(
                f"the pod has {len(containers)} containers; a job runs one command, so declare it "
                "by hand"
            )
        container = containers[0]
        command = self._texts(container, "command")
        if not command:
            raise NotImportedError(
                "the container has no command, so its image decides what runs; add the command of "
                "the image to the manifest"
            )
        self._note_surroundings(pod, container)
        env = self._environment(container)
        words = [self._expanded(word, env) for word in command + self._texts(container, "args")]
        cwd = take(container, "workingDir", str, "")
        return {"command": words, "env": env or None, "cwd": cwd or None}

    def _texts(self, container: Mapping[str, Any], key: str) -> list[str]:
        words = take(container, key, list, [])
        if not all(isinstance(word, str) for word in words):
            raise NotImportedError(f"{key} contains values that are not texts; put them in quotes")
        return words

    def _note_surroundings(self, pod: Mapping[str, Any], container: Mapping[str, Any]) -> None:
        if image := take(container, "image", str, ""):
            self._note(f"the command runs in image {image}; here a replica must have its programs")
        if take(pod, "initContainers", list, []):
            self._note("initContainers are omitted; run them in the command", "changed")
        if take(container, "volumeMounts", list, []):
            self._note("volumeMounts are omitted; mount the volumes in the replicas", "changed")
        if take(container, "envFrom", list, []):
            self._note("envFrom is omitted; set these variables in the replicas", "changed")

    def _environment(self, container: Mapping[str, Any]) -> dict[str, str | dict[str, str]]:
        env: dict[str, str | dict[str, str]] = {}
        for one in take(container, "env", list, []):
            if not isinstance(one, dict) or not isinstance(name := one.get("name"), str):
                raise NotImportedError("env contains an entry without a name; correct it")
            if one.get("valueFrom") is None:
                value = take(one, "value", str, "", f"env {name}: ")
                env[name] = self._expanded(value, env)
                if remark := secret_remark(name, value, self.options.secret_names):
                    self._note(remark)
            elif variable := _variable(take(one, "valueFrom", dict, {}, f"env {name}: ")):
                env[name] = {"env": variable}
                self._note(f"{name} is the value of {variable} in the environment of the replicas")
            else:
                self._note(f"{name} comes from the pod itself; it is omitted", "changed")
        return env

    def _expanded(self, text: str, env: Mapping[str, str | dict[str, str]]) -> str:
        """Return `text` with the variables that Kubernetes would expand: `$(NAME)`."""

        def expanded(found: re.Match[str]) -> str:
            if found[1] == "$":
                return "$"
            value = env.get(found[2])
            if isinstance(value, dict):
                self._note(f"{found[0]} is not expanded; read {found[2]} in a shell", "changed")
            return value if isinstance(value, str) else found[0]

        return _REFERENCE.sub(expanded, text)


def _variable(source: Mapping[str, Any]) -> str | None:
    """Return the variable of the replicas for a key of a Secret or a ConfigMap, if it is one."""
    for kind in ("secretKeyRef", "configMapKeyRef"):
        if isinstance(one := source.get(kind), dict):
            words = f"{one.get('name', '')}_{one.get('key', '')}"
            variable = re.sub(r"[^A-Z0-9]+", "_", words.upper()).strip("_")
            odd = not variable or variable[0].isdigit()
            return (
                f"K8S_{variable}" if odd or variable.startswith(("PG", "CRONLEDGER")) else variable
            )
    return None
