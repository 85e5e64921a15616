"""F112: each finding of the audit needs an answer, and each answer a finding."""

from tests.audit import ANSWERS, Finding, compare, pins

ANSWERED = [Finding(a.test, a.files.replace("*", "x"), 1, "") for a in ANSWERS]


def test_a_finding_without_an_answer_is_reported() -> None:
    unknown = [Finding("B307", "engine/late.py", 9, "eval"), Finding("B604", "replica.py", 2, "")]
    assert compare([*ANSWERED, *unknown]) == (unknown, [])


def test_an_answer_without_a_finding_is_reported() -> None:
    assert compare(ANSWERED[:-1]) == ([], [ANSWERS[-1]])


def test_the_audited_dependencies_are_those_of_users() -> None:
    names = {pin.partition("==")[0] for pin in pins()}
    assert {"psycopg", "psycopg-binary", "aiohttp", "multidict", "jinja2", "django"} <= names
    assert not {"pytest", "ruff", "hypothesis"} & names
