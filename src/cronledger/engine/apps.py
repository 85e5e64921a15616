"""The Apps of one runner, which come and go while it runs, and what it can call because of them."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from cronledger.app import App, Bound, bind
from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError, Problem


class AppRegistry:
    """What the runner has: `claimable` are the functions it takes work for, `callable` also those
    of Apps that went while an execution was running, `providers` the scope providers by job.

    The three are the same objects for life, changed in place on the runner's event loop.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._own = {name: bind(function) for name, function in functions.items()}
        self._apps: list[App] = []
        self.claimable: set[str] = set(self._own)
        self.callable: dict[str, Bound] = dict(self._own)
        self.providers: dict[str, tuple[Job, Callable[[], Any]]] = {}

    def __contains__(self, app: App) -> bool:
        return any(known is app for known in self._apps)

    @property
    def apps(self) -> tuple[App, ...]:
        return tuple(self._apps)

    def add(self, app: App) -> None:
        """The functions of `app` can be called. Raises ConfigurationError, and adds nothing, when
        one of them has the place of another function, or a job has the name of another App's job.
        """
        found = _functions(app)
        taken = {**self._own}
        for other in self._apps:
            taken.update(_functions(other))
        for name, job in app.jobs.items():
            where = job.target["function"]
            if where in taken and taken[where].function is not found[where].function:
                raise _ambiguous(where, name)
        for other in self._apps:
            for name in sorted(app.jobs.keys() & other.jobs.keys()):
                raise _doubled(app, other, name)
        self._apps.append(app)
        self._refresh()

    def remove(self, app: App) -> None:
        """Nothing more is claimed for `app`; what runs goes on. No App of another is touched."""
        self._apps = [known for known in self._apps if known is not app]
        self._refresh()

    def forget(self, busy: Collection[str]) -> None:
        """Functions that are neither claimable nor `busy` are let go."""
        for name in self.callable.keys() - self.claimable - set(busy):
            del self.callable[name]

    def _refresh(self) -> None:
        functions = dict(self._own)
        providers: dict[str, tuple[Job, Callable[[], Any]]] = {}
        for app in self._apps:
            functions.update(_functions(app))
            providers.update({x: (app.jobs[x], ask) for x, ask in app.providers.items()})
        self.callable.update(functions)
        self.claimable.clear()
        self.claimable.update(functions)
        self.providers.clear()
        self.providers.update(providers)


def source_of(app: App) -> str:
    """The name under which the jobs of `app` are applied. Raises ConfigurationError without one."""
    if app.name:
        return app.name
    raise ConfigurationError(
        [
            Problem(
                None, None, "App.name", None,
                "the App has no name, and its jobs are applied under that name",
                'write App("billing"), a name that no other App has',
            )
        ]
    )  # fmt: skip


def _functions(app: App) -> dict[str, Bound]:
    found: dict[str, Bound] = {}
    for name, job in app.jobs.items():
        where, function = job.target["function"], app.handlers[name]
        if where in found and found[where].function is not function:
            raise _ambiguous(where, name)
        found[where] = bind(function)
    return found


def _ambiguous(where: str, job: str) -> ConfigurationError:
    # Rows name a function by its place alone: one of the two would run for both.
    message = "is the place of another function too, such as one made in a loop"
    remedy = "give each a __qualname__ of its own, or use one function with scopes"
    return ConfigurationError([Problem(where, job, "function", where, message, remedy)])


def _doubled(app: App, other: App, job: str) -> ConfigurationError:
    message = f"the App {other.name!r} has a job of this name too"
    remedy = "choose another name for one of them"
    return ConfigurationError([Problem(app.name, job, "name", job, message, remedy)])
