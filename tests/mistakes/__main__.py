"""Make each mistake of the table in a copy of the product, and report whether its test fails.

`python -m tests.mistakes [PART OF A NAME …] [--workers N]`; the exit code is 1 if one survives.
All tests run once without a mistake before, because a test that fails anyway catches everything.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from tests.mistakes.table import MISTAKES, Mistake

ROOT = Path(__file__).parents[2]
COPIED = ("src", "migrations", "tests", "docs", "deploy", "examples")


def main() -> int:
    """Return 1 if the tests of a mistake passed, otherwise 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.mistakes", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PART OF A NAME")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    chosen = [one for one in MISTAKES if any(part in one.name for part in given.names or [""])]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="cronledger-mistakes-") as directory:
        copy = Path(directory)
        copy_product(copy)
        if not pass_in(copy, {one.test for one in chosen}, given.workers):
            raise RuntimeError("these tests fail without a mistake")
        for one in chosen:
            begun = time.monotonic()
            caught = catch(one, copy)
            verdict = "caught" if caught else "SURVIVED"
            print(f"{verdict:9} {time.monotonic() - begun:5.0f} s  {one.name}", flush=True)
            if not caught:
                survivors.append(one.name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mistakes are caught.")
    return 1 if survivors else 0


def copy_product(copy: Path) -> None:
    """Copy what the tests need, without caches and the environment."""
    for name in COPIED:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("*.md"), ROOT / "pyproject.toml", ROOT / "Makefile"):
        shutil.copy(file, copy)


def catch(one: Mistake, copy: Path) -> bool:
    """Make the mistake in the copy, run its test, and undo it. Return whether the test failed."""
    file = copy / one.file
    original = file.read_text("utf-8")
    file.write_text(one.made_in(original), "utf-8")
    try:
        return not pass_in(copy, {one.test})
    finally:
        file.write_text(original, "utf-8")


def pass_in(copy: Path, tests: Collection[str], workers: int = 0) -> bool:
    """Run these tests in the copy. Return whether all of them passed.

    Raises RuntimeError if the tests could not run.
    """
    ran = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
            "-n", str(workers), *sorted(tests),
        ],
        cwd=copy,
        env=os.environ | {
            "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1",
            "CRONLEDGER_MISTAKE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    passed = ran.returncode == 0
    if passed == ("\nFAILED " in ran.stdout):
        raise RuntimeError(f"pytest ended with {ran.returncode}\n{ran.stdout[-3000:]}")
    return passed


if __name__ == "__main__":
    sys.exit(main())
