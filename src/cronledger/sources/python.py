"""Finding an `App` or a function by `package.module:name`, with errors that say what is missing."""

import importlib
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from cronledger.app import App
from cronledger.rules.problems import ConfigurationError, Problem, nearest, shown

_FROZEN = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_IMPORTING = (__file__, importlib.__file__, *_FROZEN)
_REFERENCE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


def load_app(reference: str) -> App:
    """Import `package.module:name`, the working directory included, and answer that `App`.

    Raises ConfigurationError when there is no such module or name, when it is no `App`, and when
    the module raises or exits while it is imported (that exception is among the causes); what the
    module refuses itself, as ConfigurationError, passes through.
    """
    found = _found(reference, example="myproject.jobs:app", wanted=App)
    if isinstance(found, App):
        return found
    kind = type(found).__name__
    raise _refused(reference, f"is a {kind}, not an App", "name the `app = App()` of that module")


def resolve_function(reference: str) -> Callable[..., Any]:
    """Import `package.module:name`, the working directory included, and answer that function.

    Raises ConfigurationError as `load_app` does, and when what is found cannot be called.
    """
    found = _found(reference, example="myproject.jobs:function", wanted=Callable)
    if callable(found):
        function: Callable[..., Any] = found
        return function
    kind = type(found).__name__
    raise _refused(reference, f"is a {kind}, not a function", "name a `def` or an `async def`")


def _found(reference: str, *, example: str, wanted: Any) -> object:
    """What `reference` names; `wanted`: the type that is suggested when the name is wrong."""
    parts = _REFERENCE.fullmatch(reference)
    if parts is None:
        raise _refused(reference, "is not package.module:name", f"write it like {example}")
    module = _module(reference, parts[1])
    found: object = module
    for name in parts[2].split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            there = {key for key, value in vars(module).items() if isinstance(value, wanted)}
            remedy = nearest(name, there) if there else f"write it like {example}"
            raise _refused(reference, f"{parts[1]} has no `{name}`", remedy) from None
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
        remedy = f"looked in {here} and the Python path; start where it is, or install it"
        raise _refused(reference, f"there is no module {exc.name}", remedy) from None
    except (Exception, SystemExit) as exc:  # a module may raise anything while it is imported
        raise _broken(reference, name, exc) from exc


def _broken(reference: str, name: str, exc: BaseException) -> ConfigurationError:
    message = f"importing {name} raised {type(exc).__name__}: {exc}"
    return _refused(reference, message, "correct it; the traceback shows where", exc)


def _refused(
    reference: str, message: str, remedy: str, *causes: BaseException
) -> ConfigurationError:
    return ConfigurationError(
        [Problem(None, None, None, None, f"{shown(reference)} {message}", remedy)], causes
    )


def traceback_of(error: BaseException) -> str:
    """Return the traceback of what a module raised while it was imported, without the frames of
    the import itself."""
    at = error.__traceback__
    while at is not None and at.tb_frame.f_code.co_filename in _IMPORTING:
        at = at.tb_next
    shown = error.with_traceback(at)
    return "".join(traceback.format_exception(shown)).rstrip()
