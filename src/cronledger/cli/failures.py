"""The message and the exit code of a command that fails."""

from dataclasses import dataclass

import psycopg
from psycopg import errors

from cronledger.cli.denied import DeniedError
from cronledger.embedded.binaries import EmbeddedError
from cronledger.ledger import identity
from cronledger.ledger.database_errors import is_unreachable, refused_connection_remedy
from cronledger.ledger.migrate import MigrationError, SchemaNewerError
from cronledger.resources import LifespanError
from cronledger.rules.problems import ConfigurationError, Exit, Problem
from cronledger.settings import masked
from cronledger.sources.python import traceback_of

MIGRATE = "run `cronledger migrate`, or set CRONLEDGER_SCHEMA to the schema of the ledger"

ROW = "Failing row contains"

_OUT_OF_DATE = (
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.InvalidSchemaName,
)
# A given name or value is wrong, and nothing was changed.
_USAGE = (errors.NoDataFound, errors.DataError, errors.InsufficientPrivilege)
# These messages are complete.
_PLAIN = (
    (MigrationError, Exit.SCHEMA),
    (SchemaNewerError, Exit.SCHEMA),
    (DeniedError, Exit.USAGE),
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
            return _other(error.why)
        case psycopg.Error():
            return _database(error)
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


def _other(why: str) -> Failure:
    text = f"Error: {identity.OtherDatabaseError(why)}\nHint: {identity.ACCEPT}"
    return Failure(Exit.OTHER_DATABASE, text)


def _database(error: psycopg.Error) -> Failure:
    if (why := identity.other_database_reason(error)) is not None:
        return _other(why)
    if error.sqlstate == identity.OTHER_LEDGER:
        text = f"Error: {_primary(error)}\nHint: {identity.RETURN}"
        return Failure(Exit.OTHER_DATABASE, text)
    if isinstance(error, _OUT_OF_DATE):
        return Failure(Exit.SCHEMA, f"Error: {_primary(error)}\nHint: {MIGRATE}")
    given = masked(" ".join(str(error).split()))
    if (remedy := refused_connection_remedy(error)) is not None:
        text = f"Error: the server refused the connection: {given}\nHint: {remedy}"
        return Failure(Exit.USAGE, text)
    if is_unreachable(error):
        hint = "check CRONLEDGER_DATABASE_URL, and check that PostgreSQL is running there"
        text = f"Error: the database is unreachable: {given}\nHint: {hint}"
        return Failure(Exit.UNREACHABLE, text)
    lines = [f"Error: {_primary(error)}"]
    # The detail may quote a row with secrets: environments, headers, a lease_token.
    if error.diag.message_detail and not error.diag.message_detail.startswith(ROW):
        lines.append(f"Detail: {error.diag.message_detail}")
    advice = error.diag.message_hint or _hint(error)
    if advice:
        lines.append(f"Hint: {advice}")
    return Failure(Exit.USAGE if isinstance(error, _USAGE) else Exit.FAILED, "\n".join(lines))


def _primary(error: psycopg.Error) -> str:
    return error.diag.message_primary or masked(str(error)) or type(error).__name__


def _hint(error: psycopg.Error) -> str | None:
    match error:
        case errors.InsufficientPrivilege():
            return "use a role that has this right, or grant the right to the current role"
        case errors.LockNotAvailable() | errors.DeadlockDetected():
            return "another transaction holds a lock; try again"
    return None
