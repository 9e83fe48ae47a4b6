"""The command `kbqa completion`."""

import click
from click.shell_completion import get_completion_class

from kbqa.kb.commands.text import print_result


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets SHELL complete commands and options on Tab.

    \b
    kbqa completion bash > ~/.local/share/bash-completion/completions/kbqa
    kbqa completion zsh > ~/.zfunc/_kbqa    # a folder of your fpath
    kbqa completion fish > ~/.config/fish/completions/kbqa.fish
    """  # noqa: D301 (click looks for the character that is written \b)
    of_shell = get_completion_class(shell)
    assert of_shell is not None, "click knows the three"
    script = of_shell(context.find_root().command, {}, "kbqa", "_KBQA_COMPLETE")
    print_result(script.source())
