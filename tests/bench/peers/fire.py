"""Let a peer fire schedules, and print one line of JSON: an `Outcome` of tests/bench/firing.py.

    python -m tests.bench.peers.fire NAME DSN SCHEDULES TIMES FIRST

The database is empty. Each of SCHEDULES is due at FIRST (seconds since the epoch, a whole minute)
and at each second after it, TIMES times.
"""

import argparse
import asyncio
import json
from importlib import import_module

import psycopg

from tests.bench.firing import Calls, Firing
from tests.bench.peers.contract import Scheduler


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("dsn")
    parser.add_argument("schedules", type=int)
    parser.add_argument("times", type=int)
    parser.add_argument("first", type=int)
    options = parser.parse_args()
    module = import_module(f"tests.bench.peers.{options.name}")
    run = getattr(module, "RUN", asyncio.run)
    calls = Calls(Firing(options.schedules, options.times, options.first))
    with psycopg.connect(options.dsn, autocommit=True) as c:
        peer: Scheduler = module.PEER(options.dsn, c)
        run(peer.install())
        run(peer.fire(calls))
    print(json.dumps(calls.outcome()._asdict()))


if __name__ == "__main__":
    main()
