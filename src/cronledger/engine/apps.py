"""The Apps of one runner, which may change while it runs, and the functions that they provide."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from cronledger.declaring.app import App, Bound, bind
from cronledger.declaring.resources import ResourceMissingError
from cronledger.rules.model import Job
from cronledger.rules.problems import ConfigurationError, Problem


class AppRegistry:
    """The functions and scope providers of a runner.

    `claimable`: the functions whose executions it claims. `callable`: these, and the functions of
    removed Apps that still run. `providers`: the scope providers by job. All three are changed in
    place, on the runner's event loop. An App may be withheld: it is registered, and nothing of it
    is claimable.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._own = {name: bind(function) for name, function in functions.items()}
        self._apps: dict[App, dict[str, Bound]] = {}
        self._withheld: set[App] = set()
        self.claimable: set[str] = set(self._own)
        self.callable: dict[str, Bound] = dict(self._own)
        self.providers: dict[str, tuple[Job, Callable[[], Any]]] = {}

    def __contains__(self, app: App) -> bool:
        return app in self._apps

    @property
    def apps(self) -> tuple[App, ...]:
        return tuple(self._apps)

    def add(self, app: App) -> None:
        """Add the functions and the scope providers of `app`.

        An App with a lifespan is withheld until `provide`. Raises ConfigurationError, and adds
        nothing, if a job or channel has the name of another App's, if two functions have the same
        `module:qualname`, or if one function would have two lifespans or two lists of middleware.
        """
        found = _functions(app)
        for name in app.bound:
            where = app.jobs[name].target["python"]
            for other, functions in ((None, self._own), *self._apps.items()):
                if where in functions:
                    _require_same(where, name, (app, found[where]), (other, functions[where]))
        for other in self._apps:
            for name in sorted(app.jobs.keys() & other.jobs.keys()):
                raise _doubled(app, other, "job", name)
            for name in sorted(app.channels.keys() & other.channels.keys()):
                raise _doubled(app, other, "channel", name)
        self._apps[app] = found
        if app.lifespan is not None:
            self._withheld.add(app)
        self._refresh()

    def provide(self, app: App, value: Any) -> None:
        """Give the functions of `app` what its lifespan has yielded, and offer them.

        Raises ConfigurationError, and changes nothing, if a parameter of a function receives
        nothing.
        """
        problems: list[Problem] = []
        provided: dict[str, Bound] = {}
        for where, bound in self._apps[app].items():
            try:
                provided[where] = bound.provided(value)
            except ResourceMissingError as error:
                problems.append(Problem(where, message=error.problem, remedy=error.remedy))
        if problems:
            raise ConfigurationError(problems)
        self._apps[app] = provided
        self.offer(app)

    def offer(self, app: App) -> None:
        """Make the functions and the scope providers of `app` available."""
        self._withheld.discard(app)
        self._refresh()

    def withhold(self, app: App) -> None:
        """Stop claiming for `app`, which stays registered. Running executions continue."""
        self._withheld.add(app)
        self._refresh()

    def remove(self, app: App) -> Collection[str]:
        """Stop claiming for `app`, and return its functions. Running executions continue."""
        functions = self._apps.pop(app)
        self._withheld.discard(app)
        self._refresh()
        return functions.keys()

    def forget(self, busy: Collection[str]) -> None:
        """Remove the functions that are neither claimable nor `busy`."""
        for name in self.callable.keys() - self.claimable - set(busy):
            del self.callable[name]

    def _refresh(self) -> None:
        functions = dict(self._own)
        providers: dict[str, tuple[Job, Callable[[], Any]]] = {}
        for app, bound in self._apps.items():
            if app in self._withheld:
                continue
            functions.update(bound)
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
    for name, bound in app.bound.items():
        where = app.jobs[name].target["python"]
        if where in found:
            _require_same(where, name, (app, bound), (app, found[where]))
        found[where] = bound
    return found


def _require_same(
    where: str, job: str, one: tuple[App, Bound], other: tuple[App | None, Bound]
) -> None:
    """Raise ConfigurationError if the handlers of this name would run differently."""
    # Rows identify a function by this name alone, so one of the two would run for both.
    (app, mine), (its, theirs) = one, other
    if mine.function is not theirs.function:
        message = "two functions have this name; functions that are created in a loop share theirs"
        remedy = "give each a __qualname__ of its own, or use one function with scopes"
        raise _ambiguous(where, job, message, remedy)
    if mine.middleware != theirs.middleware:
        message = "the function is declared twice, with different middleware"
        raise _ambiguous(where, job, message, "declare a separate function for each job")
    lifespans = {x.lifespan for x in (app, its) if x is not None}
    if its is not app and lifespans != {None}:
        message = "the function is declared twice, and an App with a lifespan has it"
        raise _ambiguous(where, job, message, "declare a separate function for each job")


def _ambiguous(where: str, job: str, message: str, remedy: str) -> ConfigurationError:
    return ConfigurationError([Problem(where, job, "python", where, message, remedy)])


def _doubled(app: App, other: App, kind: str, name: str) -> ConfigurationError:
    message = f"the App {other.name!r} also has a {kind} with this name"
    remedy = "choose another name for one of them"
    job, field = (name, "name") if kind == "job" else (None, f"channels.{name}")
    return ConfigurationError([Problem(app.name, job, field, name, message, remedy)])
