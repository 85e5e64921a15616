"""`cronledger schema`: print the JSON Schema of cronledger.toml."""

import click

from cronledger.cli.show import print_json
from cronledger.sources.toml_schema import document


@click.command()
def schema() -> None:
    """Print the JSON Schema of cronledger.toml, by which editors complete and check the file.

    Write it beside the file as cronledger.schema.json. The first line of the file names it:
    #:schema ./cronledger.schema.json
    """
    print_json(document())
