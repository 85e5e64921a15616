"""The Apps of one runner, which may change while it runs, and the functions that they provide."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from cronledger.app import App, Bound, bind
from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError, Problem


class AppRegistry:
    """The functions and scope providers of a runner.

    `claimable`: the functions whose executions it claims. `callable`: these, and the functions of
    removed Apps that still run. `providers`: the scope providers by job. All three are changed in
    place, on the runner's event loop.
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
        """Add the functions and the scope providers of `app`.

        Raises ConfigurationError, and adds nothing, if a job has the name of another App's job, or
        if two functions have the same `module:qualname`.
        """
        found = _functions(app)
        taken = {**self._own}
        for other in self._apps:
            taken.update(_functions(other))
        for name, job in app.jobs.items():
            where = job.target["python"]
            if where in taken and taken[where].function is not found[where].function:
                raise _ambiguous(where, name)
        for other in self._apps:
            for name in sorted(app.jobs.keys() & other.jobs.keys()):
                raise _doubled(app, other, name)
        self._apps.append(app)
        self._refresh()

    def remove(self, app: App) -> None:
        """Stop claiming for `app`. Running executions continue."""
        self._apps = [known for known in self._apps if known is not app]
        self._refresh()

    def forget(self, busy: Collection[str]) -> None:
        """Remove the functions that are neither claimable nor `busy`."""
        for name in self.callable.keys() - self.claimable - set(busy):
            del self.callable[name]

    def _refresh(self) -> None:
        functions = dict(self._own)
        providers: dict[str, tuple[Job, Callable[[], Any]]] = {}
        for app in self._apps:
            functions.update(_functions(app))
            providers.update({x: (app.jobs[x], call) for x, call in app.providers.items()})
        self.callable.update(functions)
        self.claimable.clear()
        self.claimable.update(functions)
        self.providers.clear()
        self.providers.update(providers)


def source_of(app: App) -> str:
    """Return the name under which the jobs of `app` are applied.

    Raises ConfigurationError if the App has no name.
    """
    if app.name:
        return app.name
    raise ConfigurationError(
        [
            Problem(
                None, None, "App.name", None,
                "the App has no name, but jobs are applied under the name of their App",
                'give it a unique name, such as App("billing")',
            )
        ]
    )  # fmt: skip


def _functions(app: App) -> dict[str, Bound]:
    found: dict[str, Bound] = {}
    for name, job in app.jobs.items():
        where, function = job.target["python"], app.handlers[name]
        if where in found and found[where].function is not function:
            raise _ambiguous(where, name)
        found[where] = bind(function)
    return found


def _ambiguous(where: str, job: str) -> ConfigurationError:
    # Rows identify a function by this name alone, so one of the two would run for both.
    message = "two functions have this name; functions that are created in a loop share theirs"
    remedy = "give each a __qualname__ of its own, or use one function with scopes"
    return ConfigurationError([Problem(where, job, "python", where, message, remedy)])


def _doubled(app: App, other: App, job: str) -> ConfigurationError:
    message = f"the App {other.name!r} also has a job with this name"
    remedy = "choose another name for one of them"
    return ConfigurationError([Problem(app.name, job, "name", job, message, remedy)])
