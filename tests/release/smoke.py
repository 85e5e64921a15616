"""What a stranger does with an installed package."""

import os
from collections.abc import Iterator, Sequence
from itertools import takewhile

from cronledger.embedded.postmaster import private_directory
from tests.database import fast_directory, scratch_directory
from tests.docs.support.pages import ROOT, Block, Shell, blocks
from tests.release.environments import BASE, EXTRAS, Environment, run

AFTER = (
    "cronledger --help", "cronledger migrate", "cronledger jobs list", "cronledger verify",
    "cronledger doctor",
)  # fmt: skip
"""Commands that must succeed once the example runs."""


def imports(environment: Environment, extras: Sequence[str]) -> None:
    """Import the modules of the base and of these extras, and print the help of the command."""
    modules = [*BASE, *(module for extra in extras for module in EXTRAS[extra])]
    outside = environment.bin
    run(str(environment.python), "-c", f"import {', '.join(modules)}", directory=outside)
    run(str(environment.bin / "cronledger"), "--help", directory=outside, quiet=True)


def first_example() -> Iterator[Block]:
    """Yield the console blocks of the README up to the first block in another language."""
    return takewhile(lambda block: block.language == "console", blocks(ROOT / "README.md"))


def follow_readme(environment: Environment) -> None:
    """Do what the README shows first, in an empty home with an embedded server, then AFTER."""
    run("uv", "pip", "install", "--quiet", "--python", str(environment.python), "pip")
    path = os.pathsep.join([str(environment.bin), os.environ["PATH"]])
    variables = {"PATH": path, "PYTHONPATH": ""}
    parent = private_directory(fast_directory() / f"cronledger-tests-{os.geteuid()}")
    with scratch_directory(parent) as home, Shell(home, variables, environment.bin) as shell:
        for block in first_example():
            shell.read(block)
        for command in AFTER:
            output = shell.call(command)
            assert shell.status == 0, f"{command}\n{output}"
