"""The message and the exit code of a command that fails."""

from dataclasses import dataclass

import psycopg

from cronledger.cli.denied import DeniedError
from cronledger.declaring.resources import LifespanError
from cronledger.embedded.binaries import EmbeddedError
from cronledger.ledger import identity
from cronledger.ledger.database_errors import Explained, explained, other_database
from cronledger.ledger.migrate import MigrationError, SchemaNewerError
from cronledger.ledger.refusals import LedgerError
from cronledger.rules.masks import masked
from cronledger.rules.problems import ConfigurationError, Exit, Problem
from cronledger.rules.remedies import Surface
from cronledger.sources.python import traceback_of

# These messages are complete.
_PLAIN = (
    (MigrationError, Exit.SCHEMA),
    (SchemaNewerError, Exit.SCHEMA),
    (DeniedError, Exit.USAGE),
    (LedgerError, Exit.FAILED),
    (EmbeddedError, Exit.UNREACHABLE),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a command: its exit code, and its text for standard error."""

    code: Exit
    text: str


def explain(error: Exception) -> Failure | None:
    """Return how the command ends that raised `error`; None for a defect."""
    match error:
        case ConfigurationError():
            lines = [*tracebacks(error), *(_line(problem) for problem in error.problems)]
            return Failure(Exit.USAGE, "\n".join(lines))
        case LifespanError():
            lines = [] if error.__cause__ is None else [_traceback(error.__cause__)]
            return Failure(Exit.FAILED, "\n".join([*lines, f"Error: {masked(str(error))}"]))
        case identity.OtherDatabaseError():
            return _failure(other_database(error.why))
        case psycopg.Error():
            return _failure(explained(error, Surface.COMMAND))
    for kind, code in _PLAIN:
        if isinstance(error, kind):
            return Failure(code, f"Error: {error}")
    return None


def tracebacks(error: ConfigurationError) -> list[str]:
    """Return the tracebacks of the user's modules, each once although jobs may share a module."""
    return list(dict.fromkeys(_traceback(cause) for cause in error.causes))


def _traceback(error: BaseException) -> str:
    return "\n".join(map(masked, traceback_of(error).splitlines()))


def _line(problem: Problem) -> str:
    return f"{'Warning' if problem.warning else 'Error'}: {problem}"


def _failure(shown: Explained) -> Failure:
    return Failure(shown.code, f"Error: {shown}")
