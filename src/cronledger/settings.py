"""Settings of one runner: `CRONLEDGER_*` variables override the `[cronledger]` table of a file.

The name in the file is the name of the variable, in lower case and without its prefix. `repr`,
errors and `describe` never show secrets.
"""

import os
import re
import socket
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from cronledger.rules import durations, sql_words
from cronledger.rules.field_types import Duration, Name
from cronledger.rules.limits import LARGEST_BIGINT
from cronledger.rules.masks import masked
from cronledger.rules.problems import (
    ConfigurationError,
    Problem,
    RefusedError,
    nearest,
    problems_of,
    shown,
)
from cronledger.rules.selectors import HOST, HostName, OwnLabels
from cronledger.rules.urls import HttpUrl

PREFIX = "CRONLEDGER_"
TEST_PREFIX = "CRONLEDGER_TEST_"
TABLE = "cronledger"
ENVIRONMENT = "environment"
EMBEDDED = "embedded"
_HIDDEN = "(hidden, because it may contain a password)"
_ENCODED = "%25 for %, %40 for @, %3A for :, %2F for / and %3F for ? in user and password"
POLL = 5.0
"""The default of `poll_interval` without LISTEN, in seconds."""
LISTENING_POLL = 15.0
"""The default of `poll_interval` while notifications arrive, in seconds."""
UNKNOWN = "?"  # suffix of an unknown name in the file, which no field ends with


def _dsn(url: SecretStr) -> SecretStr:
    check_dsn(url.get_secret_value())
    return url


def check_dsn(dsn: str) -> None:
    """Raise RefusedError if `dsn` is not a valid connection string.

    libpq and psycopg quote the part that they cannot parse, which may be part of a password.
    Invalid strings are therefore refused here, and the error contains no part of `dsn`.
    """
    uri = re.match(r"postgres(?:ql)?://", dsn)
    if re.match(r"postgres(?:ql)?\+\w+://", dsn):
        raise RefusedError(
            f"is a URL of SQLAlchemy, which names a driver {_HIDDEN}",
            "begin it with postgresql://, without the driver",
        )
    if uri is None and not re.match(r"\s*[a-z_]+\s*=", dsn):
        raise RefusedError(
            f"is not a PostgreSQL connection string {_HIDDEN}",
            "use postgresql://user@host/database, or host=… dbname=…",
        )
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in dsn):
        raise RefusedError("contains a NUL, or bytes that are not UTF-8", "percent-encode them")
    if uri is not None:
        _check_uri(dsn[uri.end() :])
    # Imported here, because most users of settings need no database.
    from psycopg import Error, conninfo  # noqa: PLC0415

    try:
        port = str(conninfo.conninfo_to_dict(dsn).get("port") or "")
    except Error:
        port = "unreadable"
    if not re.fullmatch(r"[0-9, ]*", port):
        raise RefusedError(
            f"is not a valid connection string {_HIDDEN}",
            f"use postgresql://user:password@host:5432/database with {_ENCODED}, or host=… "
            "password='…' with a \\ before each quote and backslash of the password",
        )


def _check_uri(rest: str) -> None:
    """Raise RefusedError if the user or the password is probably not percent-encoded."""
    before, _, after = rest.partition("@")
    if "@" in after or ("@" in rest and "/" in before and not rest.startswith("/")):
        raise RefusedError(
            f"contains an @ or a / that is not percent-encoded {_HIDDEN}",
            f"write {_ENCODED}",
        )
    if re.search(r"%(?![0-9A-Fa-f]{2})|%00", rest):
        raise RefusedError(
            f"contains a % without two hex digits {_HIDDEN}",
            f"write {_ENCODED}",
        )


Dsn = Annotated[SecretStr, AfterValidator(_dsn)]


def _database(url: SecretStr) -> SecretStr:
    return url if url.get_secret_value() == EMBEDDED else _dsn(url)


def _between(low: str, high: str) -> AfterValidator:
    bounds = durations.parse(low), durations.parse(high)

    def check(value: timedelta) -> timedelta:
        if bounds[0] <= value <= bounds[1]:
            return value
        raise RefusedError("is out of range", f"use {low} to {high}")

    return AfterValidator(check)


Patience = Annotated[Duration, _between("1ms", "1d")]


def _number(value: object) -> object:
    if isinstance(value, bool):  # pydantic would read `true` in a file as 1
        raise RefusedError("is not a number", "use digits")
    return value


Number = Annotated[int, BeforeValidator(_number)]


def _schema(value: str) -> str:
    if value in sql_words.RESERVED:
        raise RefusedError("is a reserved word of SQL", "use another name, such as cronledger")
    if value.startswith(sql_words.SYSTEM_PREFIX) or value == "information_schema":
        raise RefusedError("is a name of the system", "use another name, such as cronledger")
    return value


SchemaName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,40}$"), AfterValidator(_schema)]


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _lowered(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def check_listen(value: str) -> str:
    """Return `value` if it is an address on which the page can listen. Raises RefusedError."""
    if value.startswith("unix:"):
        if value.removeprefix("unix:"):
            return value
    else:
        host, colon, port = value.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        enclosed = host == f"[{bare}]"
        if (
            colon and bare and ("]" not in bare) and (":" not in bare or enclosed)
            and re.fullmatch(r"[0-9]{1,5}", port) and int(port) <= 65_535
        ):  # fmt: skip
            return value
    raise RefusedError("is not an address", "use HOST:PORT, [IPv6]:PORT or unix:PATH")


def _token(value: str) -> str:
    if re.fullmatch(r"[^:]+:(viewer|operator):[0-9a-f]{64}", value):
        return value
    raise RefusedError(
        "is not a token of the page",
        "use NAME:viewer:SHA256 or NAME:operator:SHA256, with 64 hexadecimal digits in lower case",
    )


def _peer(value: str) -> str:
    if value != "unix":
        try:
            ip_network(value)
        except ValueError:
            remedy = "use an address such as 10.0.0.7, a network such as 10.0.0.0/24, or unix"
            raise RefusedError("is not an address", remedy) from None
    return value


class Settings(BaseSettings):
    """The settings of one runner. `load` reads them, and reports every problem."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        populate_by_name=True,
    )

    database_url: Annotated[SecretStr, AfterValidator(_database)] | None = Field(
        None,
        description="A PostgreSQL connection string, or `embedded` for a private PostgreSQL on "
        "this machine.",
    )
    listen_url: Dsn | None = Field(
        None,
        description="Connection string for LISTEN if `database_url` is a pooler. If it is not set, "
        "a runner behind a pooler only polls.",
    )
    schema_name: SchemaName = Field(
        "cronledger",
        validation_alias=PREFIX + "SCHEMA",
        description="The schema that holds the ledger.",
    )
    ledger_name: Name | None = Field(
        None,
        description="Name of the ledger, for people who operate several. It is the label `ledger` "
        "of the metrics, and the page and `doctor` show it.",
    )
    ledgers_file: Path | None = Field(
        None,
        description="File with the table `[ledgers]`, for people who operate several ledgers: the "
        "name of each, and how to reach its database.",
    )
    queues: Annotated[tuple[Name, ...], NoDecode, BeforeValidator(_listed)] = Field(
        ("default",),
        min_length=1,
        description="The queues that this runner serves. The variable separates them by commas.",
    )
    slots: Annotated[Number, Field(ge=1, le=10_000)] = Field(
        10, description="Maximum number of executions that this runner runs at once."
    )
    alert_slots: Annotated[Number, Field(ge=0, le=1_000)] = Field(
        2,
        description="Maximum number of deliveries of alerts that this runner carries out at once, "
        "in addition to its slots. 0: none.",
    )
    ping_url: HttpUrl | None = Field(
        None,
        description="URL of a check of Healthchecks for the whole ledger. Each runner reports to "
        "it, at most once a minute, that it can read and write the ledger. Needs the extra `http`.",
    )
    ping_allow_private: bool = Field(
        False, description="Send pings also to addresses that are not public."
    )
    sentry_check_ins: bool = Field(
        True,
        description="Send check-ins of scheduled executions to Sentry, where the program has "
        "initialised `sentry_sdk`.",
    )
    tracing: bool = Field(
        False,
        description="Create a span of OpenTelemetry for each attempt and each enqueuing call. The "
        "program configures the SDK. Needs the extra `tracing`.",
    )
    labels: Annotated[OwnLabels, NoDecode] = Field(
        (),
        description="Labels of this runner, such as `role=web,dc=fra`, which jobs name in `on` "
        "and `every`. The variable separates them by commas.",
    )
    host: HostName = Field(
        default_factory=socket.gethostname,
        validate_default=False,  # a system may have a name that no job can select
        description="Name of the host of this runner, which is its label `host`. If it is not set: "
        "the host name of the system.",
    )
    boot_id: Name | None = Field(
        None,
        description="Identity of the boot of this host, for `@reboot`. If it is not set: that of "
        "the Linux kernel. If it is set, the start of this process counts as the boot.",
    )
    hosts_retire_after: Annotated[Duration, _between("1h", "36525d")] = Field(
        timedelta(days=7),
        description="A host that has not checked in for this time leaves the jobs with `every`. It "
        "returns with its next check-in.",
    )
    runner_id: Name | None = Field(
        None,
        description="Name of this runner, which no other live runner may have. If it is not set: "
        "host and process id.",
    )
    poll_interval: Patience | None = Field(
        None,
        description="Longest time between two polls. A poll is a check-in that also searches for "
        "work that no notification (LISTEN) announced. If it is not set: 15 s while the replica "
        "receives notifications, otherwise 5 s.",
    )
    drain_timeout: Duration = Field(
        timedelta(seconds=25),
        description="Time after SIGTERM in which running work may finish before it is stopped.",
    )
    partition_interval: Annotated[Duration, _between("1h", "366d")] = Field(
        timedelta(days=7), description="Range of plan_times in one partition of executions."
    )
    pgbouncer: bool = Field(
        False,
        description="`database_url` is a pooler in transaction mode, so statements are not "
        "prepared.",
    )
    health_port: Annotated[Number, Field(ge=0, le=65_535)] | None = Field(
        None,
        description="Port of /healthz, /readyz, /diagnostics and /metrics; 0: any free port. If it "
        "is not set, they are off. Needs the extra `http`.",
    )
    health_host: Annotated[str, Field(min_length=1)] = Field(
        "127.0.0.1", description="Address of /healthz, /readyz, /diagnostics and /metrics."
    )
    metrics: bool = Field(
        False,
        description="Serve /metrics for Prometheus on `health_port`. Needs the extra `metrics`.",
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="Format of the log. `auto`: `console` on a terminal, otherwise `json`."
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], BeforeValidator(_lowered)
    ] = Field("info", description="Lowest level that is logged.")
    metrics_jobs: Annotated[Number, Field(ge=1, le=100_000)] = Field(
        1_000,
        description="Maximum number of jobs with series of their own in the metrics of the ledger. "
        "Jobs that fail or are overdue come first, then jobs in the order of their names.",
    )
    spool_dir: Path | None = Field(
        None,
        description="Directory in which `cronledger observe` keeps reports until they are "
        "delivered. It reads only the variable. If it is not set: /var/spool/cronledger for root, "
        "otherwise ~/.local/state/cronledger/spool.",
    )
    embedded_dir: Path | None = Field(
        None,
        description="Data directory of the embedded PostgreSQL. If it is not set: the data "
        "directory of the user.",
    )
    embedded_binaries: Path | None = Field(
        None,
        description="Directory of initdb and postgres. If it is not set: those of the extra "
        "`embedded`.",
    )
    allow_sql_commands: bool = Field(
        False, description="Run jobs with the handler `command` that were written with SQL."
    )
    max_result_bytes: Annotated[Number, Field(ge=0, le=1_048_576)] = Field(
        16_384, description="Largest result that is stored, in bytes of JSON."
    )
    output_tail_bytes: Annotated[Number, Field(ge=0, le=16_777_216)] = Field(
        65_536, description="Size of the end of an attempt's output that is stored, in bytes."
    )
    deploy: Annotated[Number, Field(ge=-LARGEST_BIGINT, le=LARGEST_BIGINT)] | None = Field(
        None,
        description="Version of the deployment, which only grows. An older version does not change "
        "the jobs of a newer one.",
    )
    connect_timeout: Patience = Field(
        timedelta(seconds=5), description="Longest wait for a connection to the database."
    )
    lock_timeout: Patience = Field(
        timedelta(seconds=5),
        description="Longest wait for a lock in the database, in commands and in replicas.",
    )
    tcp_user_timeout: Patience = Field(
        timedelta(seconds=10),
        description="A connection is dead if its data is unacknowledged for this time.",
    )
    web_listen: Annotated[str, AfterValidator(check_listen)] = Field(
        "127.0.0.1:8642",
        description="Address of `cronledger web`: HOST:PORT, [IPv6]:PORT, or unix:PATH. Port 0: "
        "any free port.",
    )
    web_prefix: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = Field(
        "",
        description="Path below which `cronledger web` serves the page, such as `/ops/cron`. A "
        "proxy in front must not remove it.",
    )
    web_public_url: HttpUrl | None = Field(
        None,
        description="Address of the page for people, such as `https://cron.example.com`. Set it if "
        "a proxy serves the page with HTTPS and sends no X-Forwarded-Proto.",
    )
    web_auth: Literal["loopback", "token", "proxy"] = Field(
        "loopback",
        description="How the page learns who sends a request. `loopback`: no sign-in; only this "
        "machine reaches the page. `token`: those of `web_tokens`. `proxy`: headers of a proxy "
        "that signs people in.",
    )
    web_tokens: Annotated[
        tuple[Annotated[str, AfterValidator(_token)], ...], NoDecode, BeforeValidator(_listed)
    ] = Field(
        (),
        description="Tokens of `web_auth = token`, each NAME:ROLE:SHA256 with the role `viewer` or "
        "`operator` and the SHA-256 of the token in hexadecimal. The variable separates them by "
        "commas.",
    )
    web_proxy_peers: Annotated[
        tuple[Annotated[str, AfterValidator(_peer)], ...], NoDecode, BeforeValidator(_listed)
    ] = Field(
        (),
        description="Addresses and networks of proxies, or `unix` for a unix socket. Headers of "
        "`web_auth = proxy`, and X-Forwarded-Proto, are accepted from them only. The variable "
        "separates them by commas.",
    )
    web_proxy_user_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = Field(
        "X-Forwarded-User", description="Header in which the proxy names the user."
    )
    web_proxy_groups_header: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")] = Field(
        "X-Forwarded-Groups",
        description="Header in which the proxy names the groups of the user, separated by commas.",
    )
    web_operator_groups: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        (),
        description="Groups of the proxy whose members may act. The variable separates them by "
        "commas.",
    )
    web_viewer_groups: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        (),
        description="Groups of the proxy whose members may read. If it is not set, every user "
        "whom the proxy names may read.",
    )
    web_read_url: Dsn | None = Field(
        None,
        description="Connection string with which the page reads, of a member of "
        "cronledger_viewer; it may lead to a standby. If it is not set: `database_url`.",
    )
    web_act_url: Dsn | None = Field(
        None,
        description="Connection string with which the page acts, of a member of "
        "cronledger_operator. If it is not set: `database_url`.",
    )
    web_redact: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)] = Field(
        ("password", "passwd", "secret", "token", "api_key", "authorization"),
        description="Names of fields of payloads and results whose values the page hides, without "
        "regard to case. The variable separates them by commas.",
    )

    unread: ClassVar[frozenset[str]] = frozenset()
    """The fields whose variables are not read."""

    _unknown: tuple[str, ...] = PrivateAttr(())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: variables, then the file that `load` received."""
        return _Variables(settings_cls), init_settings

    @classmethod
    def load(cls, file: Mapping[str, Any] | None = None, *, where: str | None = None) -> Self:
        """Return the settings of this process: variables override `file`, a `[cronledger]` table.

        `where` names the file in errors. Raises ConfigurationError with every invalid value.
        """
        if unreadable := [
            _variable(name, "is not UTF-8", "encode it as UTF-8")
            for name, value in sorted(os.environ.items())
            if name.upper() in VARIABLES
            and name.upper().removeprefix(PREFIX).lower() not in cls.unread
            and value != value.encode("utf-8", "replace").decode()
        ]:
            raise ConfigurationError(unreadable)
        try:
            settings = cls(**{_BY_KEY.get(k, k + UNKNOWN): v for k, v in (file or {}).items()})
        except ValidationError as exc:
            raise ConfigurationError(_problems(exc, where)) from None
        settings._unknown = tuple(
            name
            for name in sorted(os.environ)
            if name.startswith(PREFIX)
            and not name.startswith(TEST_PREFIX)
            and name not in VARIABLES
        )
        return settings

    @property
    def unknown(self) -> tuple[str, ...]:
        """The `CRONLEDGER_*` variables of the environment that are not settings."""
        return self._unknown

    def warnings(self) -> tuple[Problem, ...]:
        """Return a warning for each unknown variable, with the most similar setting."""
        return tuple(
            _variable(name, "unknown variable", _remedy(name, VARIABLES), warning=True)
            for name in self.unknown
        )

    @property
    def all_labels(self) -> list[str]:
        """The labels of this runner, with that of its host, in order."""
        return sorted([*self.labels, f"{HOST}={self.host}"])

    def require_database(self) -> str:
        """Return the connection string or `embedded`. Raises ConfigurationError if not set."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        name = PREFIX + "DATABASE_URL"
        remedy = (
            f"set {name}=postgresql://user@host/database, or, for a command, {name}={EMBEDDED}, a "
            "private PostgreSQL on this machine"
        )
        if self.ledgers_file is not None:
            remedy = f"name a ledger of {self.ledgers_file} with --ledger, or {remedy}"
        raise ConfigurationError([_variable(name, "is not set", remedy)])

    def poll_seconds(self, *, listening: bool) -> float:
        """Return the seconds between two polls of a replica, by whether notifications arrive."""
        if self.poll_interval is not None:
            return self.poll_interval.total_seconds()
        return LISTENING_POLL if listening else POLL

    def describe(self) -> dict[str, str]:
        """Return all settings as text by name in the file, `""` if unset, with masked passwords."""
        described = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                value = masked(value.get_secret_value())
            described[key_of(name)] = "" if value is None else shown(value).strip('"')
        return described


class OfflineSettings(Settings):
    """The settings of a command that needs no database: variables that name one are not read."""

    unread: ClassVar[frozenset[str]] = frozenset({"database_url", "listen_url"})


class _Variables(EnvSettingsSource):
    """The variables of the environment, except those of `unread`."""

    def __call__(self) -> dict[str, Any]:
        assert issubclass(self.settings_cls, Settings)
        values = super().__call__()
        return {name: values[name] for name in values.keys() - self.settings_cls.unread}


def key_of(field: str) -> str:
    """Return the name that a field of `Settings` has in a file."""
    return "schema" if field == "schema_name" else field


def _variable(name: str, message: str, remedy: str, *, warning: bool = False) -> Problem:
    """Return a problem of an environment variable, without its value."""
    return Problem(where=ENVIRONMENT, field=name, message=message, remedy=remedy, warning=warning)


def _problems(error: ValidationError, where: str | None) -> list[Problem]:
    present = {name.upper() for name, value in os.environ.items() if value}
    return [
        _problem(str(detail["loc"][0]), problem, where, present)
        for problem, detail in zip(problems_of(error), error.errors(include_url=False), strict=True)
    ]


def _problem(loc: str, problem: Problem, where: str | None, present: set[str]) -> Problem:
    """Return `problem` with the variable or the name in the file, and without a secret value."""
    if loc.endswith(UNKNOWN):
        key = loc.removesuffix(UNKNOWN)
        remedy = _remedy(key, _BY_KEY)
        return replace(problem, where=where, field=f"{TABLE}.{key}", value=None, remedy=remedy)
    name = "schema_name" if loc == PREFIX + "SCHEMA" else loc
    key = key_of(name)
    # Somebody may have written a token itself in place of its SHA-256.
    secret = name == "web_tokens" or "SecretStr" in str(Settings.model_fields[name].annotation)
    value = None if secret else problem.value
    variable = PREFIX + key.upper()
    if variable in present:
        return replace(problem, where=ENVIRONMENT, field=variable, value=value)
    return replace(problem, where=where, field=f"{TABLE}.{key}", value=value)


def _remedy(name: str, known: Collection[str]) -> str:
    """Return what to do about the unknown setting `name`."""
    if name.removeprefix(PREFIX).lower() == "retention":
        return "remove it: the ledger stores it; run `cronledger retention set DURATION`"
    return nearest(name, known)


_BY_KEY = {key_of(name): name for name in Settings.model_fields}
VARIABLES = frozenset(PREFIX + key.upper() for key in _BY_KEY)
