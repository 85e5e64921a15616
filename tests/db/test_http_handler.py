"""F29: the `http` handler against a server on loopback."""

import asyncio
import json
import socket
from collections.abc import Iterator
from html import escape
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from tests.db.support.sites import Site
from tests.db.support.whole_replica import Whole
from tests.waiting import eventually

TOKEN = "s3cr3t-token-value"
QUOTED = 's3cr3t-"quoted"\\value'
"""A secret that is written differently in JSON and in what Python says of bytes."""


@pytest.fixture
def whole(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> Whole:
    monkeypatch.setenv("SITE_TOKEN", TOKEN)
    monkeypatch.setenv("SITE_QUOTED", QUOTED)
    return whole


def http(
    whole: Whole, name: str, url: str, policies: dict[str, Any] | None = None, **target: Any
) -> None:
    whole.declare(name, "http", {"url": url, "allow_private": True, **target}, **(policies or {}))


@pytest.mark.long
async def test_a_request_and_its_answer(whole: Whole, site: Site) -> None:
    site.answer("/a", text="x" * 100 + "the end")
    site.answer("/b", status=202)
    headers = {"Authorization": {"env": "SITE_TOKEN", "prefix": "Bearer "}, "X-Plain": "p"}
    http(whole, "posts", site.url + "/a", method="POST", headers=headers, body={"n": 1})
    http(whole, "payload", site.url + "/b", method="PUT")
    http(whole, "text", site.url + "/b", method="POST", body="plain")
    http(whole, "gets", site.url + "/b")
    async with whole.replica(output_tail_bytes=1024):
        row = await whole.run("posts")
        for job in ("payload", "text", "gets"):
            assert (await whole.run(job, {"p": "ü"}))["result"] == {"status": 202}
    assert (row["status"], row["result"]) == ("SUCCESS", {"status": 200})
    assert row["output"].endswith("xthe end")
    method, path, sent, body = site.asked[0]
    assert (method, path, body) == ("POST", "/a", '{"n": 1}')
    assert sent["Authorization"] == f"Bearer {TOKEN}"
    assert (sent["X-Plain"], sent["Content-Type"]) == ("p", "application/json")
    assert sent["Idempotency-Key"] == f"cronledger-{row['id']}"
    assert site.asked[1][3] == '{"p": "\\u00fc"}'
    assert (site.asked[2][3], site.asked[2][2]["Content-Type"]) == (
        "plain", "text/plain; charset=utf-8",
    )  # fmt: skip
    assert (site.asked[3][0], site.asked[3][3]) == ("GET", "")


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that refuses connections, and that no other program can get meanwhile."""
    with socket.socket() as bound:  # which does not listen
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.long
async def test_failures_name_the_status_and_retries_keep_their_key(
    whole: Whole, site: Site, silent_port: int
) -> None:
    site.answer("/busy", status=503, text="later", Retry_After="0")
    site.answer("/from", status=302, Location=f"https://elsewhere.example/?key={TOKEN}")
    http(whole, "busy", site.url + "/busy", {"max_attempts": 3, "retry_backoff": ["1h"]})
    http(whole, "expects 503", site.url + "/busy", expect=[503])
    http(whole, "redirect", site.url + "/from", headers={"X-Key": {"env": "SITE_TOKEN"}})
    http(whole, "expects 302", site.url + "/from", expect=[302])
    http(whole, "nobody listens", f"http://127.0.0.1:{silent_port}/")
    async with whole.replica():
        rows = {job.name: await whole.run(job.name) for job in whole.jobs}
    assert {name: (row["status"], row["error_code"], row["attempt"])
            for name, row in rows.items()} == {
        "busy": ("FAILED", "http_status", 3), "expects 503": ("SUCCESS", None, 1),
        "redirect": ("FAILED", "http_status", 1), "expects 302": ("SUCCESS", None, 1),
        "nobody listens": ("FAILED", "not_started", 1),
    }  # fmt: skip
    busy = rows["busy"]
    assert busy["error_msg"] == "GET returned 503 Service Unavailable; expected 200 to 299"
    assert busy["output"] == "later"
    assert {asked[2]["Idempotency-Key"] for asked in site.asked[:3]} == {f"cronledger-{busy['id']}"}
    assert rows["redirect"]["error_msg"] == (
        "GET returned 302 Found; expected 200 to 299; "
        "the redirect to https://elsewhere.example/?key=*** is not followed"
    )
    assert [path for _, path, _, _ in site.asked] == ["/busy"] * 4 + ["/from"] * 2


@pytest.mark.long
async def test_secrets_are_nowhere_however_they_are_written(whole: Whole, site: Site) -> None:
    async def echo(request: web.Request) -> web.Response:
        got = request.headers["X-Key"]
        forms = [json.dumps(got), repr(got), repr(got.encode()), quote(got, safe=""), escape(got)]
        return web.Response(status=500, text="\n".join(forms), reason=f"no {got}")

    async def long(request: web.Request) -> web.Response:  # the tail begins in the secret
        return web.Response(text=TOKEN + "x" * (1024 - len(TOKEN) + 3))

    site.answers |= {"/echo": echo, "/long": long}
    for job, path, name in (
        ("token", "/echo", "SITE_TOKEN"), ("quoted", "/echo", "SITE_QUOTED"),
        ("long", "/long", "SITE_TOKEN"), ("unset", "/echo", "SITE_UNSET"),
    ):  # fmt: skip
        http(whole, job, site.url + path, headers={"X-Key": {"env": name}})
    with capture_logs() as logs:
        async with whole.replica(output_tail_bytes=1024):
            token, quoted, long_, unset = [await whole.run(job.name) for job in whole.jobs]
    assert [headers["X-Key"] for _, _, headers, _ in site.asked] == [TOKEN, QUOTED, TOKEN]
    for row in (token, quoted):
        assert (row["output"].count("***"), "***" in row["error_msg"]) == (5, True)
    assert TOKEN[-4:] not in long_["output"]
    assert long_["output"].endswith("x" * 500)
    assert (unset["error_code"], "SITE_UNSET" in unset["error_msg"]) == ("not_started", True)
    everything = str(whole.rows(
        "SELECT to_jsonb(e) FROM cronledger.executions e UNION ALL SELECT to_jsonb(j)"
        " FROM cronledger.jobs j UNION ALL SELECT to_jsonb(r) FROM cronledger.job_revisions r"
    ))  # fmt: skip
    assert "SITE_TOKEN" in everything
    assert "s3cr3t" not in everything + str(logs)


async def test_no_secret_is_in_an_exception(whole: Whole) -> None:
    """A server that answers with what it was sent instead of a status line."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        (line,) = [line for line in asked.split(b"\r\n") if line.startswith(b"X-Key")]
        writer.write(b"HTTP/1.1 " + line.partition(b": ")[2] + b" what\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    for name in ("SITE_TOKEN", "SITE_QUOTED"):
        http(whole, name, url, headers={"X-Key": {"env": name}})
    with capture_logs() as logs:
        async with whole.replica():
            rows = [await whole.run(name) for name in ("SITE_TOKEN", "SITE_QUOTED")]
    server.close()
    for row in rows:
        assert row["error_code"] == "handler_error"
        assert "***" in row["error_msg"]
    assert "s3cr3t" not in str(rows) + str(logs)


@pytest.mark.long
async def test_private_addresses_only_by_permission(whole: Whole, site: Site) -> None:
    port = site.url.rpartition(":")[2]
    hosts = ("127.0.0.1", "localhost", "[::1]")
    for number, host in enumerate(hosts):
        http(whole, f"j{number}", f"http://{host}:{port}/", allow_private=False)
    async with whole.replica():
        for number in range(len(hosts)):
            row = await whole.run(f"j{number}")
            assert (row["status"], row["error_code"]) == ("FAILED", "not_started")
            assert "is not a public address" in row["error_msg"], (hosts[number], row["error_msg"])
    assert site.asked == []


async def test_a_cancel_drops_the_connection(whole: Whole, site: Site) -> None:
    async def trickles(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while not (request.transport is None or request.transport.is_closing()):
            await response.write(b"x")
            await asyncio.sleep(0.01)
        site.gone.set()
        return response

    site.answers["/slow"] = trickles
    http(whole, "slow", site.url + "/slow")
    async with whole.replica():
        execution = await whole.trigger("slow")
        await eventually("it was asked", lambda: site.asked)
        whole.one("SELECT cronledger.cancel(%s)", execution)
        row = await whole.end(execution)
        assert row["error_code"] == "cancelled"
        await asyncio.wait_for(site.gone.wait(), 90)
