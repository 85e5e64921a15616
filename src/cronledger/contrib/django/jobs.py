"""The App of a Django project, to which its installed apps add their jobs.

Write them in a module `jobs` of an installed app:

    from cronledger.contrib.django.jobs import app


    @app.job("@hourly")
    def expire_carts() -> int: ...
"""

from typing import Any

from django.utils.module_loading import import_string

from cronledger.contrib.django import options
from cronledger.contrib.django.connections import CLOSE_OLD_CONNECTIONS
from cronledger.declaring.app import App
from cronledger.rules.problems import ConfigurationError, Problem, shown


def _app() -> App:
    """Return the App that the setting CRONLEDGER describes. Raises ConfigurationError."""
    given = options.load()
    lifespan = None if given.lifespan is None else _imported("LIFESPAN", given.lifespan)
    middleware = [_imported("MIDDLEWARE", path) for path in given.middleware]
    return App(given.name, lifespan=lifespan, middleware=[CLOSE_OLD_CONNECTIONS, *middleware])


def _imported(key: str, path: str) -> Any:
    try:
        return import_string(path)
    except ImportError as error:
        field = f"{options.SETTING}[{key!r}]"
        remedy = "write it like shop.resources.lifespan"
        problem = Problem(options.WHERE, None, field, shown(path), str(error), remedy)
        raise ConfigurationError([problem], [error]) from error


app = _app()
