"""F38: type checkers accept the right uses of declared functions, and reject the wrong ones."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USES = Path(__file__).parent / "support" / "typed_uses.py"
IGNORED = re.compile(r"  # type: ignore\[([\w-]+)\]$", re.MULTILINE)
ERROR = re.compile(r"^[^:\n]+:(\d+): error: .*\[([\w-]+)\]$", re.MULTILINE)


@pytest.fixture
def uses(tmp_path: Path) -> Path:
    """A copy of the uses in which no error is ignored."""
    copy = tmp_path / "typed_uses.py"
    copy.write_text(IGNORED.sub("", USES.read_text("utf-8")), "utf-8")
    return copy


def wrong_lines() -> set[tuple[int, str]]:
    lines = enumerate(USES.read_text("utf-8").splitlines(), 1)
    expected = {(number, found[1]) for number, line in lines if (found := IGNORED.search(line))}
    assert len(expected) > 25
    return expected


@pytest.mark.slow
def test_mypy_rejects_a_wrong_payload(uses: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", uses],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    rejected = {(int(number), code) for number, code in ERROR.findall(done.stdout)}
    assert rejected == wrong_lines(), done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_rejects_a_wrong_payload(uses: Path, tmp_path: Path) -> None:
    settings = {"include": [uses.name], "typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--project", tmp_path, "--outputjson",
         "--pythonpath", sys.executable],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1, done.stdout + done.stderr
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    rejected = {one["range"]["start"]["line"] + 1 for one in errors}
    assert rejected == {number for number, _ in wrong_lines()}, done.stdout
