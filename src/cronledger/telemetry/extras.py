"""The check that a library of an extra is installed."""

from importlib.util import find_spec

from cronledger.rules.problems import ConfigurationError, Problem


def require_library(module: str, extra: str, feature: str) -> None:
    """Raise ConfigurationError unless `module`, which `feature` needs, is installed.

    `extra`: the extra of cronledger that contains it. The module is not imported.
    """
    if find_spec(module) is None:
        remedy = f"run `pip install 'cronledger[{extra}]'`"
        raise ConfigurationError(
            [
                Problem(
                    field=feature, message=f"needs {module}, which is not installed", remedy=remedy
                )
            ]
        )
