"""`cronledger web`: serve the web page."""

from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronledger.settings import Settings

LIBRARIES = ("starlette", "jinja2", "jsonschema", "uvicorn")


@click.command()
@click.option(
    "--listen", metavar="ADDRESS",
    help="HOST:PORT, [IPv6]:PORT or unix:PATH. Port 0: any free port [default: 127.0.0.1:8642].",
)  # fmt: skip
@click.option(
    "--auth", type=click.Choice(["loopback", "token", "proxy"]),
    help="How the page learns who sends a request [default: loopback].",
)  # fmt: skip
def web(*, listen: str | None, auth: str | None) -> None:
    """Serve the web page until a stop signal.

    The page shows the ledger to viewers, and operators act on it. Its settings begin with
    CRONLEDGER_WEB_. The first line on standard error is the address of the page.

    Without a sign-in (loopback), the page serves only this machine, and everybody on it is an
    operator. While the database is unreachable, the page shows its last data. It recovers
    automatically.

    If a ledgers file is set, and --ledger is omitted, the page serves all ledgers: an overview
    at its address, and each ledger below /l/NAME/. An unreachable database then does not affect
    the other ledgers, so neither databases nor schemas are checked at the start.

    Exit codes: 0 after a stop signal; 1 if the address is in use; 2 if a setting is invalid, or
    the database refuses the connection; 4 if the schema is out of date. The page needs the extra
    `cronledger[web]`.
    """
    if missing := [name for name in LIBRARIES if find_spec(name) is None]:
        raise click.UsageError(
            f"{', '.join(missing)} is not installed; run `pip install 'cronledger[web]'`"
        )
    from cronledger.cli.session import settings_here
    from cronledger.cli.show import echo
    from cronledger.logs.output import configure
    from cronledger.web.serving import require_own_machine, serve

    given = {"web_listen": _checked(listen), "web_auth": auth}
    settings = settings_here()
    settings = settings.model_copy(update={k: v for k, v in given.items() if v is not None})
    require_own_machine(settings)
    configure(settings.log_format, settings.log_level)
    with _page(settings) as page:
        serve(
            page, settings.web_listen,
            lambda address: echo(f"cronledger web: {address}", err=True),
            prefix=settings.web_prefix, open_to_group=settings.web_auth != "loopback",
        )  # fmt: skip


@contextmanager
def _page(settings: "Settings") -> "Iterator[Any]":
    """Yield the page of the ledger, or of all ledgers of the file. An embedded server runs then."""
    from cronledger.cli.ledgers import every, is_chosen
    from cronledger.cli.session import database
    from cronledger.web.application import application, make_site, read_url
    from cronledger.web.serving import check_schema
    from cronledger.web.several import several

    if settings.ledgers_file is not None and not is_chosen():
        yield several(settings, every(settings, "web"))
        return
    own = (settings.web_read_url, settings.web_act_url)
    with nullcontext() if all(own) else database(settings) as url:
        site = make_site(settings, url)
        check_schema(read_url(settings, url), settings.schema_name)
        yield application(lambda: site)


def _checked(listen: str | None) -> str | None:
    from cronledger.rules.problems import RefusedError
    from cronledger.settings import check_listen

    try:
        return None if listen is None else check_listen(listen)
    except RefusedError as error:
        text = f"{listen!r} {error.problem}; {error.remedy}"
        raise click.BadParameter(text, param_hint="--listen") from None
