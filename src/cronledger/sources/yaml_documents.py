"""Read the documents of YAML that people or Helm wrote, each with its text, and write one.

Only this module knows the library of the extra `import`.
"""

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cronledger.extras import require_library
from cronledger.rules.problems import RefusedError

EXTRA = "import"
_HELM = "; render the templates of a chart first, with `helm template`"


@dataclass(frozen=True, slots=True)
class Part:
    """A value in a file: the line where it begins (from 1), its text, and what it contains."""

    line: int
    text: str
    value: Any


def read_documents(text: str, *, items: str | None = None) -> Iterator[Part]:
    """Yield the documents of a YAML stream, without empty ones.

    `items`: the key of a list. A document with such a list yields its items instead. Raises
    RefusedError if the text is not YAML, and ConfigurationError without the library.
    """
    require_library("yaml", EXTRA, "import")
    import yaml  # noqa: PLC0415

    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            document = loader.get_node()
            for node in _items(document, items) or [document]:
                if (part := _part(loader, node, text)).value is not None:
                    yield part
    except yaml.YAMLError as error:
        hint = _HELM if items is not None and "{{" in text else ""
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        message = where + " ".join(str(getattr(error, "problem", None) or error).split())
        raise RefusedError(f"is not YAML: {message}", f"correct it{hint}") from None
    except RecursionError:
        raise RefusedError("is nested too deeply", "make it simpler") from None
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        # Dates such as 2026-02-30, numbers of 5,000 digits, keys that are lists.
        raise RefusedError(f"is not YAML: {error}", "put this value in quotes") from None


def written(value: Any) -> str:
    """Return a value as a YAML document. The library is installed, because it read the value."""
    import yaml  # noqa: PLC0415

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=88)
    return text


def _part(loader: Any, node: Any, text: str) -> Part:
    begin, end = node.start_mark, node.end_mark
    written = " " * begin.column + text[begin.index : end.index].rstrip()
    return Part(begin.line + 1, textwrap.dedent(written), loader.construct_document(node))


def _items(document: Any, key: str | None) -> list[Any] | None:
    """Return the nodes of the list of this key, or None if the document has none."""
    if key is None or not isinstance(document.value, list) or document.id != "mapping":
        return None
    for name, node in document.value:
        if name.value == key and node.id == "sequence":
            return list(node.value)
    return None
