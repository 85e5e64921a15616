"""Values of targets that a runner reads from its environment, so that no ledger stores them."""

from collections.abc import Iterable, Mapping

from cronledger.rules import outcome
from cronledger.rules.outcome import Outcome
from cronledger.rules.targets import FromEnvironment

Values = Mapping[str, str | FromEnvironment]


def unset(values: Values, environ: Mapping[str, str], what: str) -> Outcome | None:
    """Return the outcome of an attempt if a variable is not set, otherwise None.

    `what`: the part of the job that contains the values.
    """
    names = sorted({value.env for value in _references(values)} - environ.keys())
    if not names:
        return None
    return outcome.not_started(
        f"{', '.join(names)} is not set in the environment of the runner, but the {what} of the "
        "job use it; set it for every replica"
    )


def secrets(values: Values, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of the variables, the longest first: one may be part of another."""
    found = {environ[value.env].strip() for value in _references(values)} - {""}
    return tuple(sorted(found, key=len, reverse=True))


def _references(values: Values) -> Iterable[FromEnvironment]:
    return (value for value in values.values() if isinstance(value, FromEnvironment))
