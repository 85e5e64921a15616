"""Import an `App` or a function by `package.module:name`, with errors that name a remedy."""

import importlib
import re
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from cronledger.declaring.app import App
from cronledger.rules.problems import ConfigurationError, Problem, nearest, shown

T = TypeVar("T")
_FROZEN = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_IMPORTING = (__file__, importlib.__file__, *_FROZEN)
APP_EXAMPLE = "myproject.jobs:app"
_REFERENCE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


def load_app(reference: str) -> App:
    """Import `package.module:name`, also from the working directory, and return that `App`.

    Raises ConfigurationError if the module or name does not exist, if it is not an `App`, and if
    the module raises or exits while it is imported (that exception is among the causes). A
    ConfigurationError of the module itself is raised unchanged.
    """
    return load_instance(reference, App, APP_EXAMPLE)


def load_instance(reference: str, kind: type[T], example: str) -> T:
    """Import `package.module:name` like `load_app`, and return that object of this kind."""
    found = _found(reference, example=example, wanted=kind)
    if isinstance(found, kind):
        return found
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    raise _refused(
        reference,
        f"it is a {type(found).__name__}, not {article} {kind.__name__}",
        f"name the object of the module, such as {example}",
    )


def resolve_function(reference: str) -> Callable[..., Any]:
    """Import `package.module:name`, also from the working directory, and return that function.

    Raises ConfigurationError as `load_app` does, and if the object is not callable.
    """
    found = _found(reference, example="myproject.jobs:function", wanted=Callable)
    if callable(found):
        function: Callable[..., Any] = found
        return function
    kind = type(found).__name__
    raise _refused(reference, f"it is a {kind}, not a function", "name a `def` or an `async def`")


def require_package(reference: str) -> None:
    """Check that the outermost package of `package.module:name` exists. Imports nothing.

    Raises ConfigurationError as `load_app` does.
    """
    parts = _REFERENCE.fullmatch(reference)
    if parts is None:
        raise _malformed(reference, APP_EXAMPLE)
    here, name = str(Path.cwd()), parts[1].partition(".")[0]
    if name not in sys.builtin_module_names and not PathFinder.find_spec(name, [here, *sys.path]):
        raise _no_module(reference, name, here)


def _found(reference: str, *, example: str, wanted: Any) -> object:
    """Return the object that `reference` names. For a wrong name, suggest one of type `wanted`."""
    parts = _REFERENCE.fullmatch(reference)
    if parts is None:
        raise _malformed(reference, example)
    module = _module(reference, parts[1])
    found: object = module
    for name in parts[2].split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            there = {key for key, value in vars(module).items() if isinstance(value, wanted)}
            remedy = nearest(name, there) if there else f"write it like {example}"
            raise _refused(reference, f"module {parts[1]} has no `{name}`", remedy) from None
    return found


def _module(reference: str, name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ConfigurationError:
        raise
    except ModuleNotFoundError as exc:
        if exc.name is None or not f"{name}.".startswith(f"{exc.name}."):
            raise _broken(reference, name, exc) from exc
        raise _no_module(reference, exc.name, here) from None
    except (Exception, SystemExit) as exc:  # a module may raise anything while it is imported
        raise _broken(reference, name, exc) from exc


def _malformed(reference: str, example: str) -> ConfigurationError:
    return _refused(reference, "it is not package.module:name", f"write it like {example}")


def _no_module(reference: str, name: str, here: str) -> ConfigurationError:
    message = f"there is no module {name} in {here} or on the Python path"
    remedy = "install it, or start the command in its directory"
    if name.endswith(".py"):
        remedy = f"write {reference.replace('.py:', ':')}, without .py"
    return _refused(reference, message, remedy)


def _broken(reference: str, name: str, exc: BaseException) -> ConfigurationError:
    message = f"importing {name} raised {type(exc).__name__}: {exc}"
    return _refused(reference, message, "fix the error that the traceback shows", exc)


def _refused(
    reference: str, message: str, remedy: str, *causes: BaseException
) -> ConfigurationError:
    problem = Problem(message=f"{shown(reference)}: {message}", remedy=remedy)
    return ConfigurationError([problem], causes)


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception during an import, without the frames of importlib."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename in _IMPORTING:
        at = at.tb_next
    shown = error.with_traceback(at)
    return "".join(traceback.format_exception(shown)).rstrip()
