"""Generate docs/configuration.md from the models of jobs and settings."""

import textwrap
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from cronledger.rules.calendar_spec import CalendarSpec
from cronledger.rules.channels import KINDS, Webhook
from cronledger.rules.error_codes import ERROR_MEANINGS
from cronledger.rules.model import Job
from cronledger.rules.notify import Notify
from cronledger.rules.outcome import ERROR_LENGTH
from cronledger.rules.problems import EXIT_MEANINGS, shown
from cronledger.rules.requirements import Requirement, Upstream
from cronledger.rules.storable import JSON_BYTES, JSON_DEPTH
from cronledger.rules.targets import FromEnvironment, HttpTarget
from cronledger.settings import PREFIX, Settings, key_of
from cronledger.sources.toml import DEFAULTS, POLICIES
from docs.tools.markdown import NOTE, table

INTRODUCTION = """\
A duration is written `90s`, `5m`, `1h30m`, `2d`, `1w`, `500ms` or as ISO 8601 (`PT1H30M`); a day
is 24 hours. All errors of a file are reported together, each as
`FILE: jobs.NAME.FIELD = VALUE: what is wrong; what to write`. A file with an error changes
nothing.

```toml
[cronledger]                 # settings of the runner
slots = 20

[defaults]                   # policies of every job below that does not override them
timezone = "Europe/Berlin"

[jobs.nightly-backup]
schedule = "30 2 * * *"
command = ["backup", "--full"]
env = { LEVEL = "9" }
run_timeout = "4h"

[jobs.refresh]
schedule = "*/5 * * * *"
python = "myproject.jobs:refresh"
max_attempts = 3
```

`cronledger schema > cronledger.schema.json` writes the JSON Schema of the file. If the first line
of the file is `#:schema ./cronledger.schema.json`, editors complete and check it.
[`cronledger check`](howto/check.md) also finds the mistakes that a schema cannot describe.
"""

RUNS = """\
## What a job runs

Exactly one of these in each `[jobs.NAME]`; `@app.job` runs the function it decorates.

- `command`: a list runs as it is, and a string runs in the shell. `env` is a table of variables
  that are added to the environment; `cwd` is the working directory, an absolute path. See
  [The environment of a command](#the-environment-of-a-command).
- `python`: `"package.module:function"`, a `def` or an `async def`. Its first parameter may be
  `ctx`, and another one `payload`; see [Writing handlers](python.md).
- `sql`: a statement or a script, run in one transaction with its own SUCCESS.
- `http`: a table with the names below. Needs the extra `http`.
- `external = true`: no handler; [a worker in another language](howto/workers.md) claims the
  executions.
- `observed = true`: no handler; [another scheduler](howto/observe.md) starts the runs, and reports
  them. If the job also has a handler, this lasts until replicas
  [adopt](howto/adopt.md) the job.

In the table `jobs`, the column `handler` has this word, and `target` has the same keys as the file:
`{"command": ["backup", "--full"], "cwd": "/srv"}`, `{"python": "package.module:function"}` or
`{"sql": "SELECT 1"}`. The `target` of `http` is its table, and that of `external` and of
`observed` is `{}`.
"""

ENVIRONMENT = """\
## The environment of a command

A command inherits the environment of its replica, except `CRONLEDGER_DATABASE_URL`,
`CRONLEDGER_LISTEN_URL`, `CRONLEDGER_WEB_READ_URL`, `CRONLEDGER_WEB_ACT_URL`,
`CRONLEDGER_WEB_TOKENS` and `PGPASSWORD`, which hold secrets. The table `env` of the job overrides
what is inherited. These variables describe the execution and override both:

| variable | value |
|---|---|
| `CRONLEDGER_EXECUTION_ID` | Id of the execution, the same in each attempt: an idempotency key. |
| `CRONLEDGER_JOB` | Name of the job. |
| `CRONLEDGER_SCOPE_KIND` | Kind of the scope; `global` for a job without scopes. |
| `CRONLEDGER_SCOPE_ID` | Id of the scope; `global` for a job without scopes. |
| `CRONLEDGER_PLAN_TIME` | The nominal instant, ISO 8601 in UTC. |
| `CRONLEDGER_TRIGGER` | `schedule`, `manual`, `backfill` or `enqueue`. |
| `CRONLEDGER_ATTEMPT` | Number of the attempt, from 1 on. |
| `CRONLEDGER_LEASE_TOKEN` | Token of the lease, for `SELECT cronledger.assert_lease(id, token)`. |
| `CRONLEDGER_RUNNER_ID` | Id of the replica. |
| `CRONLEDGER_WINDOW_START` | Start of its [window](howto/windows.md), if it has one. |
| `CRONLEDGER_WINDOW_END` | End of its window, which is the plan_time. |
| `CRONLEDGER_UPSTREAM` | JSON of the results of [required jobs](howto/gates.md), if it has any. |
| `CRONLEDGER_UPSTREAM_ERROR` | Instead: why it is missing, such as more than 64 KiB of JSON. |
| `TRACEPARENT`, `TRACESTATE` | Trace context of the attempt, if it is [traced](howto/traces.md). |

Standard input is empty. Standard output and standard error together are kept as the output of the
execution: the last `output_tail_bytes` of them, after a line that states how many bytes are left
out.
"""

FORMS: Mapping[type, str] = {
    bool: "`true` or `false`",
    int: "integer",
    float: "number",
    str: "text",
    timedelta: "duration",
    datetime: "instant with its zone",
    SecretStr: "connection string (secret)",
    Path: "path",
    Notify: "rule or name of a channel",
    Requirement: "name of a job or `{job = NAME, scope = SCOPE}`",
    Upstream: "name of a job or `{job = NAME, scope = SCOPE}`",
    FromEnvironment: "`{env = NAME, prefix = TEXT}`",
}


def document() -> str:
    """Return the text of docs/configuration.md."""
    sections = (_http(), [ENVIRONMENT], _calendars(), _channels(), _settings(), _codes(), _exits())
    head = ["# Configuration\n", NOTE, INTRODUCTION]
    return "\n".join([*head, *_policies(), RUNS, *chain.from_iterable(sections)])


def _policies() -> list[str]:
    rows = []
    for name, field in Job.model_fields.items():
        if name in POLICIES:
            everywhere = "yes" if name in DEFAULTS else ""
            rows.append((f"`{name}`", form(field), default(field), everywhere, _meaning(field)))
    intro = (
        "A policy has the same name in `[jobs.NAME]`, in `@app.job(...)` and in the table `jobs`. "
        f"`payload` and the handler's target have at most {JSON_BYTES:,} bytes of JSON, nested "
        f"{JSON_DEPTH} levels at most. Policies marked `yes` are also allowed in `[defaults]`. A "
        "default does not apply to a job for which it has no meaning: `dst_gap` for `@every`, "
        "`retry_backoff` for a job with one attempt."
    )
    head = ("policy", "form", "default", "in `[defaults]`", "meaning")
    return ["## Policies of a job\n", _wrapped(intro), table(head, rows)]


def _http() -> list[str]:
    rows = [
        (f"`http.{name}`", form(field), default(field), _meaning(field))
        for name, field in HttpTarget.model_fields.items()
    ]
    return [table(("name", "form", "default", "meaning"), rows)]


def _calendars() -> list[str]:
    intro = "Each `[calendars.NAME]` has these keys. [Calendars](howto/calendars.md) explains them."
    dates = "list of dates, or table of their names"
    rows = [
        (
            f"`{name}`", dates if name in ("exclude", "include") else form(field),
            default(field), _meaning(field),
        )
        for name, field in CalendarSpec.model_fields.items()
    ]  # fmt: skip
    head = ("key", "form", "default", "meaning")
    return ["## Calendars\n", _wrapped(intro), table(head, rows)]


def _channels() -> list[str]:
    intro = (
        "Each `[channels.NAME]` has a `kind` and the keys of that kind. "
        "[Channels](howto/channels.md) explains them."
    )
    rows = [
        (f"`{kind}`", f"`{name}`", form(field), default(field), _meaning(field))
        for kind, model in KINDS.items()
        for name, field in model.model_fields.items()
        if name not in ("kind", "on_ledger")
    ]
    of_all = Webhook.model_fields["on_ledger"]
    first = ("all", "`on_ledger`", form(of_all), default(of_all), _meaning(of_all))
    head = ("kind", "key", "form", "default", "meaning")
    return ["## Channels\n", _wrapped(intro), table(head, [first, *rows])]


def _settings() -> list[str]:
    rows: list[tuple[str, ...]] = []
    page: list[tuple[str, ...]] = []
    for name, field in Settings.model_fields.items():
        key = key_of(name)
        row = (f"`{key}`", f"`{PREFIX}{key.upper()}`", form(field), default(field), _meaning(field))
        (page if name.startswith("web_") else rows).append(row)
    intro = (
        "Variables of the environment override the `[cronledger]` table of the file; an empty "
        "variable counts as unset. Passwords are never printed. An unknown variable with this "
        "prefix causes a warning."
    )
    head = ("in the file", "variable", "form", "default", "meaning")
    of_page = (
        "These settings are in the same table. The page also uses `database_url`, `listen_url`, "
        "`schema`, `pgbouncer` and the timeouts above. [Web page](page.md) explains them."
    )
    return [
        "## Settings of a runner\n", _wrapped(intro), table(head, rows),
        "## Settings of the web page\n", _wrapped(of_page), table(head, page),
    ]  # fmt: skip


def _codes() -> list[str]:
    intro = (
        "`executions.error_code` is one of these, or the code of a handler's `Discard(code, "
        f"message)`. `error_msg` has at most {ERROR_LENGTH:,} characters and begins with the class "
        "and the text of an exception."
    )
    rows = [(f"`{code}`", meaning) for code, meaning in ERROR_MEANINGS.items()]
    return ["## Error codes\n", _wrapped(intro), table(("code", "meaning"), rows)]


def _exits() -> list[str]:
    rows = [(f"{code.value}", meaning) for code, meaning in EXIT_MEANINGS.items()]
    return ["## Exit codes\n", table(("code", "meaning"), rows)]


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100, break_on_hyphens=False) + "\n"


def form(field: FieldInfo) -> str:
    """Return in words the values of `field`; raise LookupError for an unknown type."""
    return _form(field.annotation)


def default(field: FieldInfo) -> str:
    """Return the default of `field` as a file writes it; empty if it has none."""
    if field.is_required():
        return "required"
    if field.default_factory is not None and not isinstance(field.default_factory, type):
        return ""  # it differs between machines
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return ""
    if isinstance(value, tuple):
        return "`[" + ", ".join(shown(item) for item in value) + "]`"
    return f"`{shown(value)}`"


def _meaning(field: FieldInfo) -> str:
    if not field.description:
        raise LookupError("a field without description cannot be documented")
    return field.description


def _form(annotation: Any) -> str:
    if annotation is Any:
        return "any value"
    if get_origin(annotation) is not None:
        return _composed(get_origin(annotation), get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{choice.value}`" for choice in annotation)
    return FORMS[annotation]


def _composed(origin: Any, arguments: tuple[Any, ...]) -> str:
    if origin is Annotated:
        return _form(arguments[0])
    if origin in (Union, UnionType):
        return " or ".join(_form(one) for one in arguments if one is not type(None))
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin in (tuple, list):
        return f"list, each: {_form(arguments[0])}"
    if origin is dict:
        return "table" if arguments[1] is Any else f"table, each: {_form(arguments[1])}"
    raise LookupError(f"no words for {origin}")
