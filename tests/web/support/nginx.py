"""nginx with the configuration of examples/proxy, and a stand-in for oauth2-proxy."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.docs.support.pages import ROOT
from tests.waiting import until
from tests.web.support.serving import certificate_of

EXAMPLE = ROOT / "examples" / "proxy"
HOST = "cron.example.com"
PLACES = "/usr/sbin:/usr/local/sbin"
PROGRAM = shutil.which("nginx") or shutil.which("nginx", path=PLACES)
needs_nginx = pytest.mark.skipif(
    PROGRAM is None, reason="there is no nginx: on Debian, apt-get install nginx-light"
)

SESSIONS = {
    "zoe": {"Email": "zoe@example.com", "Groups": "engineering,on-call"},
    "ann": {"Email": "ann@example.com", "Groups": "engineering"},
    "groupless": {"Email": "groupless@example.com"},
    "nameless": {},  # as without set_xauthrequest
}
"""The session of a cookie, and what oauth2-proxy reports of it."""

MAIN = """\
daemon off; worker_processes 1; pid {directory}/pid; {user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    include {directory}/site.conf;
}}
"""


class SignIn(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        session = re.search(r"\b_oauth2_proxy=(\w+)", self.headers.get("Cookie", ""))
        if self.path == "/oauth2/auth":
            known = SESSIONS.get(session[1]) if session else None
            self.send_response(401 if known is None else 202)
            for name, value in (known or {}).items():
                self.send_header(f"X-Auth-Request-{name}", value)
            if known:
                self.send_header("X-Auth-Request-User", "8f14e45f")
        else:
            self.send_response(302)
            wanted = self.headers.get("X-Auth-Request-Redirect", "")
            self.send_header("Location", f"https://sso.example.com{self.path}#{wanted}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def oauth2_proxy() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), SignIn) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Proxy:
    def __init__(self, port: int, plain_port: int, certificate: Path) -> None:
        self.address = f"https://{HOST}:{port}"
        self.plain_port = plain_port
        self.certificate = certificate
        self._port = port
        self._verify = ssl.create_default_context(cafile=certificate)

    def browser(self, session: str | None = None) -> httpx2.Client:
        return httpx2.Client(
            base_url=f"https://127.0.0.1:{self._port}", verify=self._verify, timeout=60,
            cookies={} if session is None else {"_oauth2_proxy": session},
            headers={"Host": f"{HOST}:{self._port}", "Accept": "text/html"},
        )  # fmt: skip


@contextmanager
def nginx(directory: Path, page: str) -> Iterator[Proxy]:
    assert PROGRAM is not None
    directory.mkdir()
    certificate, key = certificate_of(HOST, directory)
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        https, plain = (taken.getsockname()[1] for taken in sockets)
        (directory / "site.conf").write_text(
            _replaced(
                (EXAMPLE / "nginx.conf").read_text("utf-8"),
                ("unix:/run/cronledger/page", page),
                ("127.0.0.1:4180", stack.enter_context(oauth2_proxy())),
                ("listen 443 ssl", f"listen 127.0.0.1:{https} ssl"),
                ("listen 80", f"listen 127.0.0.1:{plain}"),
                ("/etc/ssl/cron.example.com.pem", str(certificate)),
                ("/etc/ssl/private/cron.example.com.key", str(key)),
            )
        )
        user = "" if os.geteuid() else "user root;"
        main = directory / "nginx.conf"
        main.write_text(MAIN.format(directory=directory, user=user))
        log = stack.enter_context((directory / "log").open("w"))
        process = subprocess.Popen(
            [PROGRAM, "-p", str(directory), "-c", str(main), "-e", "stderr"],
            pass_fds=[taken.fileno() for taken in sockets], stderr=log,
            env=os.environ | {"NGINX": "".join(f"{taken.fileno()};" for taken in sockets)},
        )  # fmt: skip
        made = Proxy(https, plain, certificate)
        try:
            until("nginx serves", lambda: _serves(made, process, directory / "log"))
            yield made
        finally:
            process.terminate()
            process.wait()


def _replaced(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text, f"examples/proxy/nginx.conf has no {old}"
        text = text.replace(old, new)
    return text


def _serves(proxy: Proxy, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    with proxy.browser() as browser:
        return browser.get("/oauth2/sign_in").status_code == 302
