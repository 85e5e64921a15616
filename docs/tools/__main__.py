"""Write the generated documents: `python -m docs.tools`, or `make docs`."""

import tempfile
from pathlib import Path

from cronledger.embedded.server import Embedded, find_binaries
from cronledger.ledger.migrate import migrate
from cronledger.sources import toml_schema
from docs.tools import commands, configuration, events, policies, schema, sql

DOCS = Path(__file__).parents[1]


def main() -> None:
    """Write each document; the SQL interface is read from a database made for it."""
    for name, generator in (
        ("configuration", configuration), ("commands", commands), ("events", events),
    ):  # fmt: skip
        (DOCS / f"{name}.md").write_text(generator.document(), "utf-8")
    (DOCS / toml_schema.FILE).write_text(schema.document(), "utf-8")
    for path, text in policies.written().items():
        path.write_text(text, "utf-8")
    with tempfile.TemporaryDirectory() as directory:
        binaries = find_binaries(None).directory
        with Embedded(Path(directory) / "server", binaries, {"fsync": "off"}) as server:
            dsn = server.start()
            migrate(dsn)
            (DOCS / "sql.md").write_text(sql.document(dsn), "utf-8")


if __name__ == "__main__":
    main()
