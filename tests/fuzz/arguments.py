"""Arguments of calls: half of them plausible for their parameter, the others from anywhere."""

import random

import click

from cronledger.rules.problems import Exit
from cronledger.settings import VARIABLES
from tests.cli.support.commands import commands
from tests.fuzz.calls import STDOUTS, Call
from tests.fuzz.values import (
    DURATIONS,
    FUNCTIONS,
    INSTANTS,
    INTEGERS,
    JSON,
    NAMES,
    SPECS,
    TEXTS,
    UUIDS,
    ZONES,
)
from tests.fuzz.world import World

# The metavar of a parameter, or the words in it, name the pool of its plausible values.
BY_WORD = {
    "iso": INSTANTS + DURATIONS, "time": INSTANTS, "duration": DURATIONS, "json": JSON,
    "zone": ZONES, "spec": SPECS, "job": NAMES, "name": NAMES, "queue": NAMES, "id": NAMES,
    "kind": NAMES, "uuid": UUIDS, "app": FUNCTIONS, "n": INTEGERS, "none": ("none",),
}  # fmt: skip
EVERYTHING = (
    *TEXTS, *INSTANTS, *DURATIONS, *JSON, *ZONES, *SPECS, *NAMES, *UUIDS, *INTEGERS, *FUNCTIONS,
)  # fmt: skip
# Not those that would start servers, and not those that the calls need to end.
FUZZED_VARIABLES = sorted(
    name for name in VARIABLES if not name.startswith(("CRONLEDGER_EMBEDDED", "CRONLEDGER_DRAIN"))
)
OTHER_VARIABLES = {
    "LOGNAME": ("\udcff", "a\x1bb", "x" * 300), "HOME": ("/nonexistent", "\udcff"),
    "COLUMNS": ("0", "-1", "x", "9" * 400, "20"), "NO_COLOR": ("1",), "TERM": ("dumb", "xterm"),
    "PGTZ": ("Asia/Tokyo", "-13"), "PGAPPNAME": ("\udcff", "x" * 300),
}  # fmt: skip


class Calls:
    """An endless source of calls in `world`."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._round: list[tuple[str, click.Command]] = []

    def next(self) -> Call:
        """Return the next call. Every command comes once in a round."""
        rng, world = self._rng, self._world
        if not self._round:
            self._round = list(commands().items())
            rng.shuffle(self._round)
        name, command = self._round.pop()
        path = name.split()
        arguments = [*path, *self._arguments(command)]
        environ, may = self._environ()
        if "dev" in path:  # it would start a server
            environ["CRONLEDGER_EMBEDDED_BINARIES"] = str(world.scratch)
            may |= {Exit.UNREACHABLE}
        if "run" in path or "--wait" in arguments:
            environ.setdefault("CRONLEDGER_DRAIN_TIMEOUT", "1s")
        return Call(
            arguments,
            environ,
            cwd=world.cwd(),
            stdin=rng.choice(world.stdins),
            stdout=rng.choices(STDOUTS, (94, 3, 3))[0],
            encoding=rng.choices(("utf-8", "ascii", "latin-1"), (94, 3, 3))[0],
            waits=any(x.startswith(("--wait", "--listen", "--follow")) for x in arguments)
            or not {"run", "web"}.isdisjoint(path),
            may=may,
        )

    def _arguments(self, command: click.Command) -> list[str]:
        rng = self._rng
        given: list[str] = []
        positional: list[str] = []
        for parameter in command.params:
            if isinstance(parameter, click.Argument):
                if parameter.required or rng.random() < 0.6:
                    count = rng.choice((1, 1, 2, 3)) if parameter.nargs == -1 else 1
                    positional += [self._value(parameter) for _ in range(count)]
            elif isinstance(parameter, click.Option) and (
                (parameter.required and rng.random() < 0.95) or rng.random() < 0.25
            ):
                given += self._option(parameter)
        if rng.random() < 0.05:
            positional.append(rng.choice(EVERYTHING))
        if rng.random() < 0.05 and positional:
            positional.pop()
        if rng.random() < 0.1:
            return given + positional
        return [*given, "--", *positional]  # a value that begins with - is a value

    def _option(self, option: click.Option) -> list[str]:
        name = self._rng.choice([*option.opts, *option.secondary_opts])
        if option.is_flag or option.count:
            return [name]
        value = self._value(option)
        return (
            [f"{name}={value}"]
            if name.startswith("--") and self._rng.random() < 0.5
            else [name, value]
        )

    def _value(self, parameter: click.Parameter) -> str:
        rng = self._rng
        if rng.random() < 0.1:
            return rng.choice(EVERYTHING)
        if isinstance(parameter.type, click.Choice):
            return str(rng.choice(parameter.type.choices))
        metavar = parameter.metavar or (parameter.name or "")
        if "FILE" in metavar and rng.random() < 0.9:
            return rng.choice(self._world.files)
        if isinstance(parameter.type, click.types.IntParamType | click.IntRange) or metavar == "ID":
            return rng.choice((*INTEGERS, *self._world.ids))
        words = [x for x in metavar.lower().replace("|", " ").strip("[].").split() if x in BY_WORD]
        pool = BY_WORD[rng.choice(words)] if words else TEXTS
        return rng.choice((*pool, *NAMES)) if pool is TEXTS else rng.choice(pool)

    def _environ(self) -> tuple[dict[str, str], frozenset[Exit]]:
        rng, world = self._rng, self._world
        environ = {
            "PATH": "/usr/bin:/bin", "HOME": str(world.scratch), "LOGNAME": "fuzz",
            "CRONLEDGER_DATABASE_URL": world.url, "CRONLEDGER_CONNECT_TIMEOUT": "2s",
        }  # fmt: skip
        if rng.random() < 0.08:
            environ["CRONLEDGER_DATABASE_URL"] = rng.choice(world.bad_urls)
            return environ, frozenset((Exit.SCHEMA, Exit.UNREACHABLE))
        if rng.random() < 0.04:
            environ["CRONLEDGER_LISTEN_URL"] = rng.choice((world.url, *world.bad_urls))
        if rng.random() < 0.1:
            name = rng.choice(FUZZED_VARIABLES)
            environ[name] = rng.choice(EVERYTHING)
            if name in ("CRONLEDGER_SCHEMA", "CRONLEDGER_DATABASE_URL"):
                return environ, frozenset((Exit.SCHEMA, Exit.UNREACHABLE))
        if rng.random() < 0.08:
            name = rng.choice(sorted(OTHER_VARIABLES))
            environ[name] = rng.choice(OTHER_VARIABLES[name])
        return environ, frozenset()
