"""Broken and hostile versions of a text, the same ones in each run."""

import random
from collections.abc import Iterator

ODD = (
    "\0", "\ufeff", "\u2028", "\\ud800", "\x1b[31m", "é" * 300, "9" * 5000, "-1", "1e999", "'", '"',
    "\t", "\n", "---\n", "{", "}", "[", "]", "*", "&a ", "*a ", "<<: ", "%", "$", "$(X)", "${X}",
    "\\", "=", ":", ": ", "#", "null", "true", "2026-02-30", "~", "..", "/", "/0", ",", "\r\n",
)  # fmt: skip


def mutated(text: str, count: int, seed: int = 27) -> Iterator[str]:
    """Yield texts that differ from `text` in one to five places."""
    draw = random.Random(seed)
    for _ in range(count):
        changed = text
        for _ in range(draw.randint(1, 5)):
            begin = draw.randint(0, len(changed))
            end = min(len(changed), begin + draw.choice([0, 0, 1, 1, 5, 40]))
            piece = draw.choice([draw.choice(ODD), changed[begin:end] * 2, "", changed[-end:][:20]])
            changed = changed[:begin] + piece + changed[end:]
        yield changed
