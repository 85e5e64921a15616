"""The check of the recorded runs of `verify`."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from cronledger.explain.findings import MOST_NAMED, DoctorContext, Finding, about, named

VERIFIED_WITHIN = timedelta(days=7)

Row = dict[str, Any]


def verification(context: DoctorContext) -> Iterator[Finding]:
    """Check that `verify` has checked all history within the last week, and found no violation."""
    runs = context.rows("examine_verifications")
    violating = [run for run in runs if run["is_violating"]]
    for run in violating[-MOST_NAMED:]:
        kinds = named(f"{count} {kind}" for kind, count in sorted(run["kinds"].items()))
        of_job = "" if run["job_name"] is None else f" of {run['job_name']}"
        remedy = "run `cronledger verify` for the details; report a defect, or accept an incident"
        found = f"run {run['id']}{of_job}, {_made(run)}, found violations: {kinds}"
        yield Finding("verification", "problem", found, remedy)
    ended = [run for run in runs if run["job_name"] is None and run["outcome"] == "finished"]
    yield from _checked(ended, is_clean=not violating)


def _checked(runs: Sequence[Row], is_clean: bool) -> Iterator[Finding]:
    """Check how far all history was checked: by a run from its beginning on, and by later ones.

    A run that began later continues an earlier one only if it leaves no gap.
    """
    remedy = "run `cronledger verify` daily, as a member of cronledger_operator"
    base, through = None, None
    for run in runs:
        reached = run["checked_through"]
        if run["from_plan_time"] is None:
            base, through = run, max(reached, through or reached)
        elif through and run["checked_after"] is not None and run["checked_after"] <= through:
            through = max(reached, through)
    if base is None or through is None:
        part = "; the recorded runs checked a part of it" if runs else ""
        found = f"no run over all jobs and all history is recorded{part}"
        yield Finding("verification", "warning", found, remedy)
        return
    found = f"all history was checked {_made(base)}"
    if through > base["checked_through"]:
        found += f", and later runs continued until {about(base['now'] - through)} ago"
    if base["now"] - through > VERIFIED_WITHIN:
        yield Finding("verification", "warning", found, remedy)
    elif is_clean:
        yield Finding("verification", "ok", f"{found}; no violation was found")


def _made(run: Row) -> str:
    return f"by {run['requested_by']} {about(run['now'] - run['finished_at'])} ago"
