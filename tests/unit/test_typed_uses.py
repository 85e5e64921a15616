"""F38: pyright accepts the right uses of declared functions, and rejects the wrong ones.

`make lint` shows the same of mypy, which reports each `ignore` of a line that it accepts.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

USES = (Path(__file__).parent / "support" / "typed_uses.py").read_text("utf-8").splitlines()
IGNORED = re.compile(r"  # type: ignore\[[\w-]+\]$")


@pytest.mark.slow
def test_pyright_rejects_a_wrong_payload(tmp_path: Path) -> None:
    wrong = {number for number, line in enumerate(USES, 1) if IGNORED.search(line)}
    assert len(wrong) > 20
    copy = tmp_path / "typed_uses.py"
    copy.write_text("\n".join(IGNORED.sub("", line) for line in USES), "utf-8")
    settings = {"include": [copy.name], "typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--project", tmp_path, "--outputjson",
         "--pythonpath", sys.executable],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1, done.stdout + done.stderr
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    assert {one["range"]["start"]["line"] + 1 for one in errors} == wrong, done.stdout
