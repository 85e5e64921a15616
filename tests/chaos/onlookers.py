"""Who watches the ledger meanwhile: the page, and readers of the page and of all metrics.

A request may fail while a database or a replica is away (refused, 503). Any other response than
200, and an end of the page, are kept in `faults`.
"""

import random
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.support.harness import ROOT
from tests.processes import clean_environ
from tests.waiting import until

PAGES = (
    "/", "/jobs", "/job/waits", "/job/steady", "/ledger", "/ledger?outcome=FAILED",
    "/timeline", "/audit", "/runners", "/forecast", "/why", "/verify", "/metrics",
)  # fmt: skip
EXCUSED = {503}
SECONDS = 60.0


class Onlookers:
    """A page, and readers of it and of `/metrics` at the ports of replicas.

    `did`: how many requests ended in which way.
    """

    def __init__(self, directory: Path, dsn: str, port: int, scraped: Sequence[int]) -> None:
        self.did: Counter[str] = Counter()
        self.faults: list[str] = []
        self._address = f"http://127.0.0.1:{port}"
        self._addresses = [
            *(("page", self._address + path) for path in PAGES),
            *(("scrape", f"http://127.0.0.1:{replica}/metrics") for replica in scraped),
        ]
        command = str(Path(sys.executable).parent / "cronledger")
        environ = {"CRONLEDGER_DATABASE_URL": dsn, "CRONLEDGER_WEB_LISTEN": f"127.0.0.1:{port}"}
        with (directory / "page.log").open("wb") as log:
            self._page = subprocess.Popen(
                [command, "web"], cwd=ROOT, env=clean_environ() | environ, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, seed: int, readers: int = 2) -> None:
        """Begin to read once the page responds."""
        until("the page responds", lambda: self._request(self._address) == "200", SECONDS)
        for number in range(readers):
            draw = random.Random(f"{seed}/onlooker {number}")
            self._threads.append(threading.Thread(target=self._read, args=[draw]))
            self._threads[-1].start()

    def stop(self) -> None:
        """Return when the last request and the page have ended."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        if self._page.poll() is not None:
            self.faults.append(f"the page ended by itself: exit status {self._page.returncode}")
        self._page.terminate()
        if (status := self._page.wait(SECONDS)) != 0:
            self.faults.append(f"the page ended with exit status {status}")

    def kill(self) -> None:
        """End the page if a run broke off."""
        self._stop.set()
        if self._page.poll() is None:
            self._page.kill()
            self._page.wait()

    def _read(self, draw: random.Random) -> None:
        while not self._stop.wait(draw.uniform(0.1, 0.5)):
            kind, address = draw.choice(self._addresses)
            self.did[f"{kind}: {self._request(address)}"] += 1

    def _request(self, address: str) -> str:
        try:
            with urllib.request.urlopen(address, timeout=SECONDS) as response:
                response.read()
                return str(response.status)
        except urllib.error.HTTPError as error:
            if error.code not in EXCUSED:
                self.faults.append(f"{address}: {error.code} {error.read(300)!r}")
            return str(error.code)
        except (OSError, ValueError):
            return "not reached"
