"""Build the packages, and test them as a stranger installs them: `python -m tests.release`.

Nothing is published. Each Python gets empty environments: the wheel without extras, with each extra
and with all of them, and the sdist. In the environments with `embedded`, outside of the checkout,
the first example of the README runs, then `migrate`, `verify` and `doctor`. The sdist runs its own
tests.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.docs.support.pages import ROOT
from tests.release.environments import BIN, EXTRAS, Environment, Python, pythons, run
from tests.release.smoke import follow_readme, imports

WITHOUT_DATABASE = ("tests/unit", "tests/docs")
"""The tests that the sdist runs unless it runs all fast ones."""


def main() -> int:
    """Return 0. A step that fails raises. Unknown arguments are those of pytest for fast tests."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    every = os.environ.get("PYTHONS", "")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="directory of the packages")
    parser.add_argument("--pythons", default=every, metavar="PYTHON …", help="default: all found")
    parser.add_argument("--suite", action="store_true", help="the sdist runs all fast tests")
    parser.add_argument("--lowest", action="store_true", help="only test the lowest versions")
    given, fast = parser.parse_known_args()
    found = pythons(given.pythons.split())
    print("Python:", ", ".join(python.version for python in found), flush=True)
    if given.lowest:
        _test_lowest(found[0], fast)
        return 0
    wheel, sdist = _build(given.out)
    for python in found:
        _install(python, wheel, sdist)
    _test_sdist(found[-1], sdist, fast if given.suite else [*fast, *WITHOUT_DATABASE])
    _run_once(wheel)
    return 0


def _build(out: Path) -> tuple[Path, Path]:
    """Build both packages into `out`, check them, and return their paths."""
    shutil.rmtree(out, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", str(out), str(ROOT))
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
    run(str(BIN / "check-wheel-contents"), str(wheel))
    for package in (wheel, sdist):
        print(f"{package.name}: {package.stat().st_size / 1e6:.1f} MB", flush=True)
    return wheel, sdist


def _install(python: Python, wheel: Path, sdist: Path) -> None:
    """Install the packages in each form into empty environments of this Python."""
    for extra in ("", *EXTRAS, ",".join(EXTRAS)):
        with Environment(python) as environment:
            environment.install(wheel, extra)
            imports(environment, [one for one in extra.split(",") if one])
            shown = "all extras" if "," in extra else extra or "no extra"
            print(f"{python.version} {shown}", flush=True)
            if extra == "embedded":
                follow_readme(environment)
    with Environment(python) as environment:
        environment.install(sdist, "embedded")
        follow_readme(environment)
    print(f"{python.version} README, migrate, verify and doctor: wheel and sdist", flush=True)


def _test_sdist(python: Python, sdist: Path, tests: Sequence[str]) -> None:
    """Collect all tests of the unpacked sdist, and run those that these arguments select."""
    with Environment(python) as environment:
        with tarfile.open(sdist) as archive:
            archive.extractall(environment.directory, filter="data")
        (source,) = environment.directory.glob("cronledger-*")
        environment.install(source, "dev")
        pytest = str(environment.bin / "pytest")
        run(pytest, "--collect-only", directory=source, quiet=True)
        run(pytest, *tests, directory=source)


def _test_lowest(python: Python, tests: Sequence[str]) -> None:
    """Run the fast tests with the lowest versions of the dependencies of the product."""
    with Environment(python) as environment:
        pins = environment.directory / "lowest.txt"
        run("uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate",
            "--resolution", "lowest-direct", "--python", str(environment.python),
            *(word for extra in EXTRAS for word in ("--extra", extra)),
            "--output-file", str(pins), str(ROOT / "pyproject.toml"), quiet=True)  # fmt: skip
        environment.install(ROOT, "dev", constraints=pins, editable=True)
        # The test client of old versions of Starlette needs it.
        run("uv", "pip", "install", "--quiet", "--python", str(environment.python), "httpx")
        print(pins.read_text("utf-8"), flush=True)
        run(str(environment.bin / "pytest"), *tests, directory=ROOT)


def _run_once(wheel: Path) -> None:
    """Run the command from the wheel without an installation, by uv and by pipx."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        run("uvx", "--quiet", "--from", str(wheel), "cronledger", "--version", directory=directory)
        home = {"PIPX_HOME": str(directory / "pipx")}
        run(str(BIN / "pipx"), "run", "--no-cache", "--spec", str(wheel), "cronledger", "--version",
            directory=directory, variables=home)  # fmt: skip


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        print(error.stdout or "", f"failed with {error.returncode}: {error.cmd}", file=sys.stderr)
        sys.exit(1)
