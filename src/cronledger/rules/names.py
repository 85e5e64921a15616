"""Names that people can tell from each other. `name_problem` in SQL has the same rules."""

import unicodedata
from collections.abc import Iterator

from cronledger.rules.model import Job
from cronledger.rules.problems import Problem, shown


def problem_of(name: str) -> str | None:
    """Return why this cannot be the name of a job or queue, or the kind or id of a scope."""
    if any(unicodedata.category(character) == "Cc" for character in name):
        return "contains a control character"
    return "begins or ends with white space" if name != name.strip() else None


def problems(job: Job, where: str | None = None) -> Iterator[Problem]:
    """Yield a problem for each name of `job` that a new job may not have."""
    names = [("name", job.name), ("queue", job.queue), ("scope_kind", job.scope_kind)]
    names += [(f"scopes[{number}]", scope) for number, scope in enumerate(job.scopes or ())]
    for field, name in names:
        if (message := problem_of(name)) is not None:
            yield Problem(
                where=where, job=job.name, field=field, value=shown(name), message=message,
                remedy="remove these characters",
            )  # fmt: skip
