"""The executions that a runner can run and the schedules that it can plan."""

from collections.abc import Collection
from dataclasses import dataclass, field

from cronledger.engine.peers import NewerPeers
from cronledger.ledger.claim_rows import JobFacts
from cronledger.rules import selectors
from cronledger.rules.model import RUN_BY_OTHERS, Handler, ScopeKey

KINDS = (Handler.PYTHON, Handler.COMMAND, Handler.SQL, Handler.HTTP)


@dataclass(frozen=True, slots=True)
class Abilities:
    """The handler kinds, the Python functions and the labels of this runner."""

    functions: Collection[str]
    allow_sql_commands: bool = False
    labels: Collection[str] = ()
    kinds: Collection[Handler] = KINDS
    peers: NewerPeers = field(default_factory=lambda: NewerPeers({}))

    def runs(self, facts: JobFacts) -> bool:
        """Return whether this runner can run executions of the job."""
        if not set(facts.on).issubset(self.labels):
            return False
        if facts.handler == Handler.PYTHON:
            return facts.function in self.functions
        return facts.handler in self.kinds

    def reaches(self, scope: ScopeKey) -> bool:
        """Return whether the scope is no host, or the host of this runner."""
        return scope.host is None or f"{selectors.HOST}={scope.host}" in self.labels

    def plans(self, facts: JobFacts) -> bool:
        """Return whether this runner plans the job. Every runner plans what others run."""
        return facts.handler in RUN_BY_OTHERS or self.runs(facts)

    def refusal(self, facts: JobFacts) -> str | None:
        """Return the reason why runners with this configuration refuse the job, or None.

        The reason becomes the job's spec_error.
        """
        if facts.handler == Handler.COMMAND and facts.from_sql and not self.allow_sql_commands:
            return (
                "handler = command: commands of jobs written by SQL are not allowed; declare the "
                "job in a file, or set CRONLEDGER_ALLOW_SQL_COMMANDS=true on every replica"
            )
        return None
