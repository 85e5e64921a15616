"""Generate docs/commands.md from the commands themselves."""

from collections.abc import Iterator

import click

from cronledger.cli import main
from docs.tools.markdown import NOTE, one_line, table

INTRODUCTION = """\
Each command with its arguments and options, as `cronledger COMMAND --help` prints them.
[Command line](cli.md) explains what they have in common: the database, output, exit codes, rights.
"""


def document() -> str:
    """Return the text of docs/commands.md."""
    root = click.Context(main, info_name="cronledger")
    general = f"## Options before the command\n\n{_options(root)}"
    sections = [_section(context) for context in commands(root)]
    return "\n".join(["# Commands\n", NOTE, INTRODUCTION, general, *sections])


def commands(context: click.Context) -> Iterator[click.Context]:
    """Yield the context of each command below this one that is not a group."""
    assert isinstance(context.command, click.Group)
    for name in context.command.list_commands(context):
        command = context.command.get_command(context, name)
        assert command is not None
        below = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from commands(below)
        else:
            yield below


def _section(context: click.Context) -> str:
    name = context.command_path.removeprefix("cronledger ")
    words = [context.command_path, *context.command.collect_usage_pieces(context)]
    help_text = (context.command.help or "").replace("\b\n", "")
    paragraphs = [one_line(paragraph) for paragraph in help_text.split("\n\n")]
    usage = f"```\n{' '.join(words)}\n```\n"
    text = "".join(f"{_escaped(paragraph)}\n\n" for paragraph in paragraphs).rstrip("\n") + "\n"
    return "\n".join(filter(None, [f"## {name}\n", usage, text, _options(context)]))


def _options(context: click.Context) -> str:
    rows = []
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if record is not None and record[1]:  # the usage shows an argument without a text
            rows.append((f"`{record[0]}`", _escaped(one_line(record[1]))))
    return table(("option", "meaning"), rows) if rows else ""


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", r"\*")
