"""`cronledger schema`: print the JSON Schema of cronledger.toml."""

import click

from cronledger.cli.show import print_json


@click.command()
def schema() -> None:
    """Print the JSON Schema of cronledger.toml, by which editors complete and check the file.

    Write it beside the file as cronledger.schema.json. The first line of the file names it:
    #:schema ./cronledger.schema.json
    """
    from cronledger.sources.toml_schema import document

    print_json(document())
