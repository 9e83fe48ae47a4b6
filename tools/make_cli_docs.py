"""Print docs/cli.md, the reference of the command line, from what `--help` says.

python tools/make_cli_docs.py > docs/cli.md
"""

from collections.abc import Iterator

import click

from kbqa.engine.cli import main

HEADER = """# The command line

What `kbqa COMMAND --help` says. `tools/make_cli_docs.py` made this page; a test holds it to that.
"""
WIDTH = 88


def helps(command: click.Command, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Yield the context of a command, then those of all commands below it."""
    context = click.Context(
        command,
        parent=parent,
        info_name=command.name,
        terminal_width=WIDTH,
        **command.context_settings,
    )
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from helps(below, context)


if __name__ == "__main__":
    print(HEADER)
    pages = (
        f"## {context.command_path}\n\n```text\n{context.get_help()}\n```\n"
        for context in helps(main)
    )
    print("\n".join(pages), end="")
