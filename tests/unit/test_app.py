"""Declaring jobs in Python, calling handlers, finding an App by its name."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel

import cronledger
from cronledger import App, Context, LeaseLost
from cronledger.declaring.app import bind
from cronledger.rules import validation
from cronledger.rules.model import CatchUp, Handler
from cronledger.rules.problems import ConfigurationError
from cronledger.sources.python import load_app, resolve_function
from cronledger.testing import context


def plain() -> str:
    return "plain"


def with_ctx(ctx: Any, more: int = 1) -> object:
    return ctx


def annotated_as_text(c: "cronledger.Context") -> object:
    return c


def not_context(value: int = 3, *args: int, **kwargs: int) -> int:
    return value


class Callables:
    def method(self, ctx: Context) -> object:
        return ctx

    def __call__(self, ctx: Context) -> object:
        return ctx


GIVEN = context("j", execution_id=7)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (plain, "plain"), (with_ctx, GIVEN), (annotated_as_text, GIVEN), (not_context, 3),
        (Callables().method, GIVEN), (Callables(), GIVEN), (partial(with_ctx, more=2), GIVEN),
    ],
)  # fmt: skip
def test_bind_calls_with_or_without_the_context(
    function: Callable[..., Any], expected: object
) -> None:
    bound = bind(function)
    assert bound(GIVEN) == expected
    assert not bound.is_async


async def test_bind_knows_async_functions() -> None:
    class Asynchronous:
        async def __call__(self, ctx: Context) -> int:
            return ctx.execution_id

    for function in (Asynchronous(), Asynchronous().__call__, partial(Asynchronous().__call__)):
        assert bind(function).is_async
        assert await bind(function)(GIVEN) == 7


def needs(other: int) -> None: ...


def keyword_only(ctx: Context, *, other: int) -> None: ...


def yields() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("function", [needs, keyword_only, yields, Callables, 3])
def test_bind_refuses_functions_that_cannot_be_handlers(function: Any) -> None:
    with pytest.raises(TypeError, match=r"handler|function"):
        bind(function)
    with pytest.raises(TypeError):
        App().job("* * * * *", name="x")(function)


def declared_once() -> None: ...


def test_a_declared_function_stays_what_it_was() -> None:
    app = App("a")
    declare = app.job("*/5 * * * *", timezone="Europe/Berlin", grace="90s", catch_up="skip")
    assert declare(declared_once) is declared_once
    job = app.jobs["declared_once"]
    given = {"schedule", "timezone", "grace", "catch_up"}
    assert job.model_fields_set == {"name", "handler", "target"} | given
    assert (job.schedule, job.timezone) == ("*/5 * * * *", "Europe/Berlin")
    assert (job.handler, job.catch_up) == (Handler.PYTHON, CatchUp.SKIP)
    assert job.grace == timedelta(seconds=90)
    assert job.target == {"python": f"{__name__}:declared_once"}
    assert app.handlers == {"declared_once": declared_once}
    assert app.providers == {}
    assert validation.check(app.jobs.values()) == ()


def documented() -> None:
    """
    Send the report.

    To everybody.
    """


def test_the_first_line_of_the_docstring_is_the_description() -> None:
    app = App()
    app.job()(documented)
    app.job(name="named", description="Another text.")(documented)
    app.job(name="none", description=None)(documented)
    app.job(name="partial")(partial(plain))
    found = [job.description for job in app.jobs.values()]
    assert found == ["Send the report.", "Another text.", None, None]


@pytest.mark.parametrize(
    ("policies", "said"),
    [
        ({"overlap": "never"}, r'jobs\.plain\.overlap = "never": is not a valid choice; use'),
        ({"ovrlap": "skip"}, r"jobs\.plain\.ovrlap = \"skip\": .*; did you mean `overlap`\?"),
        ({"target": {}}, r"jobs\.plain\.target: is derived from the function; remove it"),
        ({"scopes": "abc"}, r"jobs\.plain\.scopes"),
        ({"retry_on": "timeout"}, r"is not a list; put it in brackets: retry_on = "),
    ],
)
def test_a_wrong_policy_is_refused_when_it_is_declared(policies: dict[str, Any], said: str) -> None:
    app = App()
    with pytest.raises(ConfigurationError, match=said) as error:
        app.job(**{"schedule": "* * * * *", **policies})(plain)
    assert {problem.where for problem in error.value.problems} == {f"{__name__}:plain"}
    assert (dict(app.jobs), dict(app.handlers), dict(app.bound)) == ({}, {}, {})


def test_all_problems_of_a_declaration_are_reported_together() -> None:
    def handler(payload: int) -> None: ...

    app = App()
    app.job(name="taken")(plain)
    with pytest.raises(ConfigurationError, match=r"jobs\.taken\.name: is already used by .*:plain"):
        app.job(name="taken")(plain)
    policies: dict[str, Any] = {
        "name": "taken", "timezone": "Mars", "grace": "1x", "ovrlap": "skip", "target": {},
        "payload_schema": {},
        "stale_timeout": "1s", "retry_on": [int, LeaseLost], "never_retry_on": ["not a name!"],
        "max_attempts": 2, "payload": "three",
    }  # fmt: skip
    with pytest.raises(ConfigurationError) as error:
        app.job("61 * * * *", **policies)(handler)
    fields = [problem.field for problem in error.value.problems]
    assert sorted(str(field) for field in fields) == [
        "grace", "name", "never_retry_on", "ovrlap", "payload", "payload_schema", "retry_on",
        "retry_on", "schedule", "stale_timeout", "target", "timezone",
    ]  # fmt: skip
    assert {problem.job for problem in error.value.problems} == {"taken"}
    assert list(app.jobs) == ["taken"]
    with pytest.raises(ConfigurationError) as error:
        app.job("61 * * * *", name="n\n", payload=object())(plain)
    assert [problem.field for problem in error.value.problems] == ["payload", "name", "schedule"]


def test_warnings_do_not_refuse_a_declaration() -> None:
    app = App()
    app.job("*/45 * * * *", retry_jitter=0.5)(plain)
    found = validation.check(app.jobs.values())
    assert [problem.field for problem in found] == ["retry_jitter", "schedule"]


class Order(BaseModel):
    number: int


def ships(ctx: Context, payload: Order) -> None: ...


def ships_by_default(ctx: Context, payload: Order | str = "none") -> None: ...


def ships_nothing(ctx: Context, payload: Order | None) -> None: ...


MISSING = r"jobs\.j\.payload: is missing, but the handler requires one \(payload: Input should be"
REFUSED = r"jobs\.j\.payload: would be refused by the handler \(payload\.number: Input should be"


@pytest.mark.parametrize(
    ("function", "declared", "said"),
    [
        (ships, {}, MISSING), (ships, {"payload": {"number": "x"}, "schedule": None}, REFUSED),
        (ships_by_default, {"payload": 3}, r"jobs\.j\.payload: would be refused by the handler"),
        (ships, {"payload": Order(number=3)}, None), (ships, {"schedule": None}, None),
        (ships_by_default, {}, None), (ships_nothing, {}, None), (plain, {"payload": 3}, None),
    ],
)  # fmt: skip
def test_a_job_whose_every_firing_would_fail_is_refused(
    function: Callable[..., Any], declared: dict[str, Any], said: str | None
) -> None:
    app = App()
    policies: dict[str, Any] = {"schedule": "@hourly", "name": "j", **declared}
    if said is None:
        app.job(**policies)(function)
        return
    with pytest.raises(ConfigurationError, match=said) as error:
        app.job(**policies)(function)
    (problem,) = error.value.problems
    assert problem.remedy
    assert '"x"' not in str(problem)


def test_a_payload_whose_validator_fails_here_is_left_to_the_replica() -> None:
    def looks_up(value: int) -> int:
        raise LookupError("no settings in this process")

    def handler(payload: int) -> None: ...

    handler.__annotations__["payload"] = Annotated[int, AfterValidator(looks_up)]
    app = App()
    app.job("@hourly", payload=3)(handler)
    assert app.jobs["handler"].payload == 3


def test_a_payload_becomes_plain_json() -> None:
    app = App()
    app.job(payload={"at": datetime(2026, 1, 1, tzinfo=UTC)})(plain)
    assert app.jobs["plain"].payload == {"at": "2026-01-01T00:00:00Z"}


def test_scopes_are_fixed_or_provided() -> None:
    async def tenants() -> list[str]:
        return ["a"]

    app = App()
    app.job(name="fixed", scope_kind="tenant", scopes=["a", "b"])(plain)
    app.job(name="provided", scope_kind="tenant", scopes=tenants)(plain)
    assert app.jobs["fixed"].scopes == ("a", "b")
    assert app.jobs["provided"].scopes is None
    assert app.providers == {"provided": tenants}
    assert validation.check(app.jobs.values(), providers=app.providers) == ()
    with pytest.raises(TypeError, match="scope provider"):
        app.job(name="needy", scope_kind="tenant", scopes=needs)(plain)  # type: ignore[arg-type]


def test_a_decorator_without_parentheses_or_name_is_refused() -> None:
    app = App()
    with pytest.raises(TypeError, match="parentheses"):
        app.job(plain)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name="):
        app.job()(lambda: None)
    app.job(name="lambda")(lambda: None)
    assert validation.check(app.jobs.values()) == ()


def test_deploy_is_an_integer_or_an_instant() -> None:
    assert App(deploy=12).deploy == 12
    assert App(deploy=datetime(1970, 1, 1, 0, 1, tzinfo=UTC)).deploy == 60
    assert App().deploy is None
    with pytest.raises(ValueError, match="zone"):
        App(deploy=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError, match="neither"):
        App(deploy="abc123")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="63 bits"):
        App(deploy=2**63)


@pytest.mark.long
def test_libraries_are_imported_when_they_are_used() -> None:
    program = """
import sys, cronledger

def absent(*names):
    assert not {*names} & set(sys.modules), {*names} & set(sys.modules)

absent("pydantic", "cronledger.declaring.app")
from cronledger import App, Context, Discard, LeaseLost, Result, Retry
absent("croniter", "asyncio", "pydantic_settings")
assert cronledger.__version__[0].isdigit()
assert set(cronledger.__all__) <= set(dir(cronledger))
@App().job()
def work(payload: int) -> None: ...
assert work.enqueue
absent("psycopg", "cronledger.ledger")
import cronledger.client
absent("django", "sqlalchemy", "asyncpg", "aiohttp")
from cronledger.process.daemon import DaemonOptions
from cronledger.settings import Settings
replica = cronledger.Replica(url="postgresql:///unused", settings=Settings())
absent("prometheus_client")
replica.collector()
assert "prometheus_client" in sys.modules
try:
    cronledger.Nothing
except AttributeError as exc:
    print(exc)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "module 'cronledger' has no attribute 'Nothing'\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "somewhere"
    package.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
    (package / "__init__.py").write_text("")
    (package / "jobs.py").write_text(
        "from cronledger import App\napp = App('mine')\nnumber = 3\n"
        "@app.job('@hourly')\ndef work(): return 1\n"
    )
    (package / "broken.py").write_text("import no_such_dependency\n")
    (package / "wrong.py").write_text(
        "from cronledger import App\nApp().job(name='n', overlap='x')(lambda: 1)\n"
    )
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "somewhere"]:
        del sys.modules[name]


def test_an_app_and_its_functions_are_found_in_the_working_directory(project: Path) -> None:
    app = load_app("somewhere.jobs:app")
    assert isinstance(app, App)
    assert list(app.jobs) == ["work"]
    assert resolve_function("somewhere.jobs:work") is app.handlers["work"]
    with pytest.raises(ConfigurationError, match=r"is a int, not a function"):
        resolve_function("somewhere.jobs:number")


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("somewhere.jobs", r'"somewhere.jobs": it is not package\.module:name; write it like'),
        ("elsewhere.jobs:app", r"there is no module elsewhere in /"),
        ("somewhere.jobs.py:app", r"write somewhere\.jobs:app, without \.py"),
        ("somewhere.jobs:ap", r"somewhere\.jobs has no `ap`; did you mean `app`\?"),
        ("somewhere.jobs:number", r"is a int, not an App; name the"),
        ("somewhere.broken:app", r"importing somewhere\.broken raised ModuleNotFoundError: .*dep"),
        ("somewhere.wrong:app", r"jobs\.n\.overlap"),
    ],
)
def test_an_app_that_is_not_found_is_reported_with_the_cause(
    project: Path, reference: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_app(reference)
