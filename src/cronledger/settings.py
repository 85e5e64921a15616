"""Settings of one runner: `CRONLEDGER_*` variables over the `[cronledger]` table of a file.

The name in the file is the variable's, in lower case without its prefix. Secrets are never shown:
not by `repr`, not in errors, not by `describe`.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self

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
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from cronledger.rules import durations
from cronledger.rules.limits import LARGEST_BIGINT
from cronledger.rules.model import Duration, Name
from cronledger.rules.problems import (
    ConfigurationError,
    Problem,
    RefusedError,
    nearest,
    problems_of,
    shown,
)

PREFIX = "CRONLEDGER_"
TEST_PREFIX = "CRONLEDGER_TEST_"
TABLE = "cronledger"
ENVIRONMENT = "environment"
EMBEDDED = "embedded"
MASK = "***"
UNKNOWN = "?"  # behind a name of the file that is no setting: no field is called so


def _dsn(url: SecretStr) -> SecretStr:
    check_dsn(url.get_secret_value())
    return url


def check_dsn(dsn: str) -> None:
    """Raise RefusedError if `dsn` is not a connection string, or not the one that is meant.

    libpq and psycopg quote what they cannot read, and that may be a piece of a password. So nothing
    reaches them that they would stumble over, and nothing of `dsn` is in the error.
    """
    uri = re.match(r"postgres(?:ql)?://", dsn)
    if uri is None and not re.match(r"\s*[a-z_]+\s*=", dsn):
        raise RefusedError(
            "is not a PostgreSQL connection string (it is not shown: it may contain a password)",
            "write postgresql://user@host/database or host=… dbname=…",
        )
    if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in dsn):
        raise RefusedError("contains a NUL or bytes that are not UTF-8", "percent-encode them")
    if uri is not None:
        _check_uri(dsn[uri.end() :])
    # Late, because most of what reads settings needs no database.
    from psycopg import Error, conninfo  # noqa: PLC0415

    try:
        port = str(conninfo.conninfo_to_dict(dsn).get("port") or "")
    except Error:
        port = "unreadable"
    if not re.fullmatch(r"[0-9, ]*", port):
        raise RefusedError(
            "is not a valid connection string (it is not shown: it may contain a password)",
            "write postgresql://user:password@host:5432/database with " + _ENCODED + "; or host=… "
            "password='…', with a \\ before each quote and backslash of the password",
        )


_ENCODED = "%25 for %, %40 for @, %3A for :, %2F for / and %3F for ? in user and password"


def _check_uri(rest: str) -> None:
    """Raise RefusedError where a user or a password is probably not encoded."""
    before, _, after = rest.partition("@")
    if "@" in after or ("@" in rest and "/" in before and not rest.startswith("/")):
        raise RefusedError(
            "contains an @ or a / that is not encoded (it is not shown: it may contain a password)",
            f"write {_ENCODED}",
        )
    if re.search(r"%(?![0-9A-Fa-f]{2})|%00", rest):
        raise RefusedError(
            "contains a % without two hex digits (it is not shown: it may contain a password)",
            f"write {_ENCODED}",
        )


def _database(url: SecretStr) -> SecretStr:
    return url if url.get_secret_value() == EMBEDDED else _dsn(url)


def _between(low: str, high: str) -> AfterValidator:
    bounds = durations.parse(low), durations.parse(high)

    def check(value: timedelta) -> timedelta:
        if bounds[0] <= value <= bounds[1]:
            return value
        raise RefusedError("is out of range", f"write {low} to {high}")

    return AfterValidator(check)


Patience = Annotated[Duration, _between("1ms", "1d")]


def _number(value: object) -> object:
    if isinstance(value, bool):  # of the file; pydantic takes true for 1
        raise RefusedError("is not a number", "write digits")
    return value


Number = Annotated[int, BeforeValidator(_number)]


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _lowered(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


class Settings(BaseSettings):
    """What one runner is told; read it with `load`, which reports what is wrong."""

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
        description="A PostgreSQL connection string, or `embedded`: a private PostgreSQL of this "
        "one machine.",
    )
    listen_url: Annotated[SecretStr, AfterValidator(_dsn)] | None = Field(
        None,
        description="Where to LISTEN when `database_url` is a pooler; none: without LISTEN there, "
        "polling suffices.",
    )
    schema_name: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,40}$")] = Field(
        "cronledger",
        validation_alias=PREFIX + "SCHEMA",
        description="The schema that holds the ledger.",
    )
    queues: Annotated[tuple[Name, ...], NoDecode, BeforeValidator(_listed)] = Field(
        ("default",),
        min_length=1,
        description="The queues this runner takes work from; in the variable with commas between.",
    )
    slots: Annotated[Number, Field(ge=1, le=10_000)] = Field(
        10, description="Executions this runner runs at once."
    )
    runner_id: Name | None = Field(
        None, description="Name of this runner; none: host and process id."
    )
    poll_interval: Patience = Field(
        timedelta(seconds=5), description="Look for work at least this often."
    )
    drain_timeout: Duration = Field(
        timedelta(seconds=25),
        description="After SIGTERM, how long running work may go on before it is stopped.",
    )
    retention: Annotated[Duration, _between("1h", "36525d")] = Field(
        timedelta(days=90), description="How long executions are kept."
    )
    partition_interval: Annotated[Duration, _between("1h", "366d")] = Field(
        timedelta(days=7), description="How much time one partition of executions holds."
    )
    pgbouncer: bool = Field(
        False,
        description="`database_url` is a pooler in transaction mode: no server-side prepares.",
    )
    health_port: Annotated[Number, Field(ge=0, le=65_535)] | None = Field(
        None, description="Port of /healthz, /readyz and /diagnostics; none: off; 0: any free one."
    )
    health_host: Annotated[str, Field(min_length=1)] = Field(
        "127.0.0.1", description="Address of /healthz, /readyz and /diagnostics."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="`auto`: `console` on a terminal, else `json`."
    )
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], BeforeValidator(_lowered)
    ] = Field("info", description="The least that is logged.")
    embedded_dir: Path | None = Field(
        None, description="Data directory of the embedded PostgreSQL; none: that of the user."
    )
    embedded_binaries: Path | None = Field(
        None, description="Directory of initdb and postgres; none: those of the extra `embedded`."
    )
    allow_sql_commands: bool = Field(
        False, description="Whether jobs written with SQL may have the handler `command`."
    )
    max_result_bytes: Annotated[Number, Field(ge=0, le=1_048_576)] = Field(
        16_384, description="Most bytes of JSON of a result that are stored."
    )
    output_tail_bytes: Annotated[Number, Field(ge=0, le=16_777_216)] = Field(
        65_536, description="Last bytes of the output of an attempt that are stored."
    )
    deploy: Annotated[Number, Field(ge=-LARGEST_BIGINT, le=LARGEST_BIGINT)] | None = Field(
        None,
        description="Ordered version of the deployment; an older one changes no jobs of a newer "
        "one.",
    )
    connect_timeout: Patience = Field(
        timedelta(seconds=5), description="Longest wait for a connection to the database."
    )
    lock_timeout: Patience = Field(
        timedelta(seconds=5), description="Longest wait for a lock in the database."
    )
    tcp_user_timeout: Patience = Field(
        timedelta(seconds=10),
        description="A connection whose data goes unacknowledged this long is dead.",
    )

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
        """Variables first, then what `load` was given from the file; no other source."""
        return env_settings, init_settings

    @classmethod
    def load(cls, file: Mapping[str, Any] | None = None, *, where: str | None = None) -> Self:
        """Answer the settings of this process: variables over `file`, its `[cronledger]` table.

        `where` names the file in errors. Raises ConfigurationError with every bad value.
        """
        given = dict(file or {})
        if unreadable := [
            Problem(ENVIRONMENT, None, name, None, "is not UTF-8", "set it in UTF-8")
            for name, value in sorted(os.environ.items())
            if name.upper() in VARIABLES and value != value.encode("utf-8", "replace").decode()
        ]:
            raise ConfigurationError(unreadable)
        try:
            settings = cls(**{_BY_KEY.get(key, key + UNKNOWN): given[key] for key in given})
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
        """The `CRONLEDGER_*` variables of the environment that mean nothing here."""
        return self._unknown

    def warnings(self) -> tuple[Problem, ...]:
        """Answer a warning for each unknown variable, with the one it may have meant."""
        return tuple(
            Problem(
                ENVIRONMENT,
                None,
                name,
                None,
                "there is no such variable",
                nearest(name, VARIABLES),
                warning=True,
            )
            for name in self.unknown
        )

    def require_database(self) -> str:
        """Answer the connection string, or `embedded`; raises ConfigurationError when unset."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        raise ConfigurationError(
            [
                Problem(
                    ENVIRONMENT,
                    None,
                    PREFIX + "DATABASE_URL",
                    None,
                    "is not set, so there is no ledger to work on",
                    f"set {PREFIX}DATABASE_URL=postgresql://user@host/database, or "
                    f"{PREFIX}DATABASE_URL={EMBEDDED} for a private PostgreSQL on this machine",
                )
            ]
        )

    def describe(self) -> dict[str, str]:
        """Answer every setting as text by its name in the file, passwords masked, `""`: none."""
        described = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                value = masked(value.get_secret_value())
            described[key_of(name)] = "" if value is None else shown(value).strip('"')
        return described


def key_of(field: str) -> str:
    """Answer the name in the file of a field of `Settings`."""
    return "schema" if field == "schema_name" else field


def masked(dsn: str) -> str:
    """Answer `dsn` with every password replaced by `***`; in doubt more is masked, never less."""
    text = re.sub(r"(?<=://)([^:@/?#]*):.*@", rf"\1:{MASK}@", dsn, flags=re.DOTALL)
    return re.sub(
        r"(?i)((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|(?:[^\s&\\]|\\.)*)",
        rf"\g<1>{MASK}",
        text,
    )


def _problems(error: ValidationError, where: str | None) -> list[Problem]:
    present = {name.upper() for name, value in os.environ.items() if value}
    return [
        _problem(str(detail["loc"][0]), problem, where, present)
        for problem, detail in zip(problems_of(error), error.errors(include_url=False), strict=True)
    ]


def _problem(loc: str, problem: Problem, where: str | None, present: set[str]) -> Problem:
    """`problem`, said of the variable or of the name in the file, without a secret value."""
    if loc.endswith(UNKNOWN):
        key = loc.removesuffix(UNKNOWN)
        remedy = nearest(key, _BY_KEY)
        return replace(problem, where=where, field=f"{TABLE}.{key}", value=None, remedy=remedy)
    name = "schema_name" if loc == PREFIX + "SCHEMA" else loc
    key = key_of(name)
    secret = "SecretStr" in str(Settings.model_fields[name].annotation)
    value = None if secret else problem.value
    variable = PREFIX + key.upper()
    if variable in present:
        return replace(problem, where=ENVIRONMENT, field=variable, value=value)
    return replace(problem, where=where, field=f"{TABLE}.{key}", value=value)


_BY_KEY = {key_of(name): name for name in Settings.model_fields}
VARIABLES = frozenset(PREFIX + key.upper() for key in _BY_KEY)
