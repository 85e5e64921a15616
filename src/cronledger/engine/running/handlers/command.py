"""Command handlers: an argv or a shell string, run by the supervisor process.

Values of `env` that name a variable come from the environment of the runner when an attempt starts.
They are not in the ledger, and an output that contains them is redacted.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from cronledger.declaring.app import Context, LeaseLost
from cronledger.engine.awaited import FOLLOW_SECONDS
from cronledger.engine.commands.client import CommandEnd, OnOutput, Supervisor
from cronledger.engine.lease import Lease
from cronledger.engine.running.attempt_spans import trace_context
from cronledger.engine.running.handlers.guard import LeaseEndedError
from cronledger.engine.running.handlers.variables import secrets, unset
from cronledger.engine.running.output import Capture
from cronledger.rules import outcome
from cronledger.rules.masks import StreamMask, longest_spelling, redacted, redacted_tail
from cronledger.rules.model import Job
from cronledger.rules.outcome import Outcome
from cronledger.rules.targets import CommandTarget, FromEnvironment
from cronledger.tracing.interface import AttemptSpan

UPSTREAM_BYTES = 64 * 1024
"""Linux refuses a variable of 128 KiB."""


@dataclass(frozen=True, slots=True)
class CommandHandlers:
    """Runs the commands of a runner."""

    supervisor: Supervisor
    tail_bytes: int
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    async def run(
        self,
        job: Job,
        context: Context,
        lease: Lease,
        span: AttemptSpan | None,
        capture: Capture | None = None,
    ) -> Outcome:
        """Run the command to its end. A cancellation stops all its processes and then propagates.

        The variables TRACEPARENT and TRACESTATE are those of `span`. The latter may be empty.

        Raises LeaseEndedError if the command was killed at the end of its lease, or if the lease
        had ended before the command could start.
        """
        target = CommandTarget.model_validate(dict(job.target))
        if (refused := unset(target.env, self.environ, "variables")) is not None:
            return refused
        deadline = lease.deadline
        trace = {name.upper(): value for name, value in trace_context(span).items()}
        if trace:  # otherwise the state of the trace in which the replica was started is inherited
            trace.setdefault("TRACESTATE", "")
        variables = {**self._declared(target), **environment(context), **trace}
        end = await self._run(target, context, variables, deadline, capture)
        # Nothing has run. If the lease was renewed meanwhile, there is time for it again.
        while end.reason == "too_late" and lease.usable and lease.deadline > deadline:
            deadline = lease.deadline
            end = await self._run(target, context, variables, deadline, capture)
        match end.reason:
            case "too_late":
                raise LeaseEndedError
            case "not_started" if not lease.usable:
                raise LeaseEndedError
            case "not_started":
                return outcome.not_started(end.error or "the command could not be started")
            case "lease":
                raise LeaseEndedError(end.output)
            case "guardian_died" | "supervisor_died" | "eof":
                return outcome.lease_over(end.reason, end.output)
            case "exited" | "stopped":
                if end.signal is not None:
                    return outcome.exited(-end.signal, end.output)
                if end.returncode is None:  # it was stopped, and its guardian died
                    return outcome.lease_over("guardian_died", end.output)
                return outcome.exited(end.returncode, end.output)

    def _declared(self, target: CommandTarget) -> dict[str, str]:
        return {
            name: value.prefix + self.environ[value.env]
            if isinstance(value, FromEnvironment)
            else value
            for name, value in target.env.items()
        }

    async def _run(
        self,
        target: CommandTarget,
        context: Context,
        variables: Mapping[str, str],
        deadline: float,
        capture: Capture | None,
    ) -> CommandEnd:
        command, hidden = target.command, secrets(target.env, self.environ)

        def report(done: int, total: int | None, text: str | None) -> None:
            with suppress(LeaseLost):  # the command is stopped by other means
                context.progress(done, total, text and redacted(text, hidden))

        end = await self.supervisor.run(
            str(context.lease_token),
            argv=None if isinstance(command, str) else command,
            shell=command if isinstance(command, str) else None,
            env=variables,
            cwd=target.cwd,
            deadline=deadline,
            tail_bytes=self.tail_bytes + longest_spelling(hidden),
            progress=report,
            output=None if capture is None else _shown(capture, StreamMask(hidden)),
            follow_seconds=FOLLOW_SECONDS if capture is not None and capture.is_followed else 0.0,
        )
        output = redacted_tail(end.output, hidden, self.tail_bytes, end.missing)
        return replace(end, output=output)


def _shown(capture: Capture, mask: StreamMask) -> OnOutput:
    """Return what passes the output of a command to its capture, with its secrets masked."""

    def write(text: str, missing: int) -> None:
        shown = mask.after_gap(text, missing) if missing else (mask.feed(text), 0)
        capture.write(*shown)

    return write


def environment(context: Context) -> Mapping[str, str]:
    """Return the environment variables that describe the execution. Times are ISO 8601 in UTC."""
    variables = {
        "CRONLEDGER_EXECUTION_ID": str(context.execution_id),
        "CRONLEDGER_JOB": context.job,
        "CRONLEDGER_SCOPE_KIND": context.scope_kind,
        "CRONLEDGER_SCOPE_ID": context.scope_id,
        "CRONLEDGER_PLAN_TIME": context.plan_time.isoformat(),
        "CRONLEDGER_TRIGGER": context.trigger.value,
        "CRONLEDGER_ATTEMPT": str(context.attempt),
        "CRONLEDGER_LEASE_TOKEN": str(context.lease_token),
        "CRONLEDGER_RUNNER_ID": context.runner_id,
    }
    if context.window is not None:
        variables["CRONLEDGER_WINDOW_START"] = context.window.start.isoformat()
        variables["CRONLEDGER_WINDOW_END"] = context.window.end.isoformat()
    return variables | context._upstreams.handed_over("CRONLEDGER_UPSTREAM", UPSTREAM_BYTES)
