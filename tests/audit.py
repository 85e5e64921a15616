"""Audit the product: `python -m tests.audit [--strict]`.

bandit reads `src`. A finding without an answer in ANSWERS fails, and so does an answer without a
finding. pip-audit looks for known vulnerabilities of the dependencies of all extras, as they are
installed. If a machine cannot reach its service, nothing is audited: this is printed, and
fails with --strict only.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
TOOLS = ("audit", "bench", "dev", "docs", "release")
"""The extras that are not for users."""
PROBE = "psycopg"


class Answer(NamedTuple):
    """Why findings of a test of bandit, in files below src/cronledger, are no defect."""

    test: str
    files: str
    reason: str


ANSWERS = (
    Answer("B101", "*", "an assert narrows a type; no check of an input is one"),
    Answer("B404", "*", "commands of jobs and servers are processes"),
    Answer("B603", "*", "a list, without a shell: the command of a job, or programs of PostgreSQL"),
    Answer("B604", "engine/running/handlers/command.py", "the job asks for a shell by a string"),
    Answer("B604", "engine/alerting/senders.py", "the channel asks for a shell by a string"),
    Answer("B604", "sources/crontab.py", "notes the SHELL of a crontab; starts nothing"),
    Answer("B606", "engine/commands/spawn.py", "the child becomes the command of the job"),
    Answer("B108", "embedded/postmaster.py", "the socket has a directory of the user alone in it"),
    Answer("B311", "engine/running/executor.py", "spreads retries; no secret"),
    Answer("B311", "engine/runtime/loops.py", "spreads the steps of loops; no secret"),
    Answer("B405", "web/drawing/*", "the page builds elements, and parses none"),
    Answer("B405", "web/pages/timeline.py", "the page builds elements, and parses none"),
    Answer("B608", "engine/claiming/revisions.py", "a text for people, which is not executed"),
    Answer("B608", "explain/doctor_ledger.py", "a text for people, which is not executed"),
    Answer("B608", "rules/remedies.py", "patterns of texts, which are not executed"),
    Answer("B608", "ledger/migrate.py", "the name of the schema is checked when it is set"),
    Answer("B608", "ledger/queries.py", "the names are of the code; values are parameters"),
    Answer("B105", "sources/github_actions.py", "the name of a variable, not its value"),
    Answer("B704", "web/forecasting.py", "the markup of built elements, whose texts are escaped"),
    Answer("B704", "web/pages/*.py", "the markup of built elements, whose texts are escaped"),
    Answer("B704", "web/parts.py", "a digest is inserted into markup of a template"),
)  # fmt: skip


class Finding(NamedTuple):
    """A finding of bandit: its test, and the file below src/cronledger with the line."""

    test: str
    file: str
    line: int
    text: str


def main() -> int:
    """Return 0 if nothing was found that has no answer, otherwise 1."""
    found = findings()
    unanswered, unused = compare(found)
    for finding in unanswered:
        print(f"src/cronledger/{finding.file}:{finding.line}: {finding.test} {finding.text}")
    for answer in unused:
        print(f"the answer to {answer.test} in {answer.files} has no finding; remove it")
    print(f"bandit: {len(found)} findings, {len(unanswered)} without an answer")
    return int(bool(unanswered or unused) or not _dependencies_are_sound("--strict" in sys.argv))


def compare(found: Sequence[Finding]) -> tuple[list[Finding], list[Answer]]:
    """Return the findings without an answer, and the answers without a finding."""
    unused = [a for a in ANSWERS if not any(_answers(a, finding) for finding in found)]
    return [f for f in found if not any(_answers(a, f) for a in ANSWERS)], unused


def _answers(answer: Answer, finding: Finding) -> bool:
    return answer.test == finding.test and fnmatch(finding.file, answer.files)


def findings() -> list[Finding]:
    """Return what bandit finds in the product."""
    source = ROOT / "src" / "cronledger"
    ran = subprocess.run(
        [sys.executable, "-m", "bandit", "--quiet", "--exit-zero", "--recursive", str(source),
         "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [
        Finding(one["test_id"], Path(one["filename"]).relative_to(source).as_posix(),
                one["line_number"], one["issue_text"])
        for one in json.loads(ran.stdout)["results"]
    ]  # fmt: skip


def _dependencies_are_sound(strict: bool) -> bool:
    """Return whether pip-audit knows no vulnerability, or could not ask and that is permitted."""
    (probe,) = _pip_audit([f"{PROBE}=={metadata.version(PROBE)}"])
    if "skip_reason" in probe:
        print("pip-audit: NOT AUDITED, its service cannot be reached from this machine")
        return not strict
    audited = _pip_audit(sorted(pins()))
    vulnerable = [one for one in audited if one.get("vulns")]
    skipped = [one["name"] for one in audited if "skip_reason" in one]
    for one in vulnerable:
        print(one["name"], one["version"], *(vulnerability["id"] for vulnerability in one["vulns"]))
    print(f"pip-audit: {len(audited)} dependencies, {len(vulnerable)} with known vulnerabilities")
    if skipped:
        print("not audited:", *skipped)
    return not vulnerable and not (strict and skipped)


def _pip_audit(requirements: Iterable[str]) -> list[dict[str, Any]]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(requirements))
        file.flush()
        ran = subprocess.run(
            [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off",
             "--no-deps", "--disable-pip", "--requirement", file.name],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    if not ran.stdout:  # no connection at all
        return [{"skip_reason": ran.stderr.strip().rpartition("\n")[2]}]
    result: list[dict[str, Any]] = json.loads(ran.stdout)["dependencies"]
    return result


def pins() -> set[str]:
    """Return the dependencies of cronledger with the extras for users, as they are installed."""
    extras = set(metadata.metadata("cronledger").get_all("Provides-Extra") or ()) - {*TOOLS}
    found: set[str] = set()
    waiting = [("cronledger", frozenset(extras))]
    seen = set(waiting)
    while waiting:
        name, wanted = waiting.pop()
        for text in metadata.requires(name) or ():
            needed = Requirement(text)
            if needed.marker and not any(
                needed.marker.evaluate({"extra": extra}) for extra in (wanted or {""})
            ):
                continue
            one = (needed.name, frozenset(needed.extras))
            if one not in seen:
                seen.add(one)
                waiting.append(one)
                found.add(f"{needed.name}=={metadata.version(needed.name)}")
    return found


if __name__ == "__main__":
    sys.exit(main())
