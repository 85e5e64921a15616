"""The check that a library of an extra is installed."""

from importlib.util import find_spec

from cronledger.rules.problems import ConfigurationError, Problem


def is_installed(module: str) -> bool:
    """Return whether `module` can be imported. Imports at most the packages that contain it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package that contains it
        return False


def require_library(module: str, extra: str, feature: str) -> None:
    """Raise ConfigurationError unless `module`, which `feature` needs, is installed.

    `extra`: the extra of cronledger that contains it. The module itself is not imported.
    """
    if not is_installed(module):
        remedy = f"run `pip install 'cronledger[{extra}]'`"
        raise ConfigurationError(
            [
                Problem(
                    field=feature, message=f"needs {module}, which is not installed", remedy=remedy
                )
            ]
        )


def require_http(feature: str) -> None:
    """Raise ConfigurationError unless `feature` can send or receive HTTP requests."""
    require_library("aiohttp", "http", feature)
