"""Elements of SVG and HTML as trees, so that every text and attribute is escaped.

No element has a `style`: the page permits none, and the colours of light and dark are those of the
stylesheet's classes.
"""

import re
from xml.etree.ElementTree import Element, SubElement, tostring

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def element(tag: str, text: str | None = None, **attributes: object) -> Element:
    """Return an element. `class_` is its class, and `_` in a name is `-`; None is left out."""
    found = Element(tag, _named(attributes))
    if text is not None:
        found.text = printable(text)
    return found


def add(parent: Element, tag: str, text: str | None = None, **attributes: object) -> Element:
    """Append an element to `parent` and return it. The arguments are those of `element`."""
    found = SubElement(parent, tag, _named(attributes))
    if text is not None:
        found.text = printable(text)
    return found


def markup(root: Element) -> str:
    """Return the element as text for a page of HTML."""
    # Only in SVG may an element close itself: `<ul />` would stay open.
    for one in root.iter():
        if one.text is None and not len(one):
            one.text = ""
    return tostring(root, encoding="unicode", short_empty_elements=False)


def number(value: float) -> str:
    """Return a coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def printable(text: str) -> str:
    """Return the text without the characters that no document may contain."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _named(attributes: dict[str, object]) -> dict[str, str]:
    return {
        ("class" if name == "class_" else name.replace("_", "-")): _value(value)
        for name, value in attributes.items()
        if value is not None
    }


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else printable(str(value))
