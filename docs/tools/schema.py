"""Generate docs/cronledger.schema.json from the models of jobs and settings."""

import json

from cronledger.sources import toml_schema


def document() -> str:
    """Return the text of docs/cronledger.schema.json."""
    return json.dumps(toml_schema.document(), indent=2, ensure_ascii=False) + "\n"
