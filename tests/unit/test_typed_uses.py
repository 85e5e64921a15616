"""F38: mypy accepts the right uses of declared functions, and rejects the wrong ones."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USES = Path(__file__).parent / "support" / "typed_uses.py"
IGNORED = re.compile(r"  # type: ignore\[([\w-]+)\]$", re.MULTILINE)
ERROR = re.compile(r"^[^:\n]+:(\d+): error: .*\[([\w-]+)\]$", re.MULTILINE)


@pytest.mark.slow
def test_f38_mypy_rejects_a_wrong_payload(tmp_path: Path) -> None:
    text = USES.read_text("utf-8")
    expected = {
        (number, found[1])
        for number, line in enumerate(text.splitlines(), 1)
        if (found := IGNORED.search(line))
    }
    assert len(expected) > 15
    copy = tmp_path / "typed_uses.py"
    copy.write_text(IGNORED.sub("", text), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", copy],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    rejected = {(int(number), code) for number, code in ERROR.findall(done.stdout)}
    assert rejected == expected, done.stdout + done.stderr
