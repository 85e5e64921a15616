"""Print the structure of the code: `python -m docs.tools.structure`, or `make structure`.

The packages stand on levels: each imports only what stands below it. The longest modules and
functions follow, then the number of lines by part of the repository.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import grimp

ROOT = Path(__file__).parents[2]
PACKAGE = "cronledger"
DIVIDED = ("cronledger.engine",)
"""Packages whose own packages are shown one by one."""
LONGEST = 10


class Sized(NamedTuple):
    """A module or function, and how many lines it has."""

    lines: int
    name: str


def parts(graph: grimp.ImportGraph) -> dict[str, str]:
    """Return the part (a package, or a module at the top) of each module."""
    tops = set(graph.find_children(PACKAGE)) - set(DIVIDED)
    for package in DIVIDED:
        tops |= set(graph.find_children(package))
    found = {}
    for module in graph.modules:
        for top in tops:
            if module == top or module.startswith(f"{top}."):
                found[module] = top
    return found


def levels(graph: grimp.ImportGraph) -> dict[str, int]:
    """Return the level of each part: 0 imports no other one. Raises ValueError for a cycle."""
    part_of = parts(graph)
    imports: dict[str, set[str]] = {part: set() for part in part_of.values()}
    for module, part in part_of.items():
        used = {part_of.get(x) for x in graph.find_modules_directly_imported_by(module)}
        imports[part] |= {x for x in used if x is not None and x != part}
    found: dict[str, int] = {}
    while len(found) < len(imports):
        ready = {part for part in imports.keys() - found.keys() if imports[part] <= found.keys()}
        if not ready:
            raise ValueError(f"the imports of these are a cycle: {imports.keys() - found.keys()}")
        found |= {p: 1 + max((found[x] for x in imports[p]), default=-1) for p in ready}
    return found


def longest(directory: Path) -> tuple[list[Sized], list[Sized]]:
    """Return the longest modules and the longest functions, the longest first."""
    modules, functions = [], []
    for path in directory.rglob("*.py"):
        text = path.read_text("utf-8")
        name = str(path.relative_to(directory))
        modules.append(Sized(text.count("\n"), name))
        functions += [Sized(x.lines, f"{name}: {x.name}") for x in _functions(ast.parse(text))]
    return sorted(modules, reverse=True)[:LONGEST], sorted(functions, reverse=True)[:LONGEST]


def _functions(tree: ast.Module) -> Iterator[Sized]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield Sized(node.end_lineno - node.lineno + 1, node.name)


def sizes() -> Mapping[str, int]:
    """Return the lines of each part of the repository."""
    where = {
        "src, Python": ("src", "*.py"),
        "src, SQL": ("src", "*.sql"),
        "migrations": ("migrations", "*.sql"),
        "tests": ("tests", "*.py"),
        "docs": ("docs", "*.md"),
    }
    return {
        name: sum(path.read_text("utf-8").count("\n") for path in (ROOT / top).rglob(pattern))
        for name, (top, pattern) in where.items()
    }


def main() -> None:
    """Print all of it."""
    found = levels(grimp.build_graph(PACKAGE))
    print("Levels: each part imports only parts of lower levels.\n")
    for level in range(max(found.values()), -1, -1):
        names = sorted(x.removeprefix(f"{PACKAGE}.") for x in found if found[x] == level)
        print(f"{level:3}  {'  '.join(names)}")
    modules, functions = longest(ROOT / "src" / PACKAGE)
    for title, sized in (("modules", modules), ("functions", functions)):
        print(f"\nThe longest {title}, in lines:\n")
        print("\n".join(f"{x.lines:5}  {x.name}" for x in sized))
    print("\nLines:\n")
    print("\n".join(f"{lines:6}  {name}" for name, lines in sizes().items()))


if __name__ == "__main__":
    main()
