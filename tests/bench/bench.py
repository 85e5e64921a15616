"""What a run has at hand: a server, the sizes of its form, and what it compares with."""

from dataclasses import dataclass
from pathlib import Path

from tests.bench.forms import Form
from tests.bench.product import Product
from tests.bench.server import Server


@dataclass(frozen=True, slots=True)
class Bench:
    """One run. `baseline` and `peers` (the interpreter of their environment) may be None."""

    server: Server
    form: Form
    baseline: Product | None
    peers: Path | None
    profile: Path | None = None
