"""`underfed completion`: what a shell needs to complete commands, options, rules and paths."""

from __future__ import annotations

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print the completion of a shell: `eval "$(underfed completion bash)"` in ~/.bashrc.

    Commands, options and their values, ids of rules, and paths; behind `--` the words of your own command.

    For zsh the same goes into ~/.zshrc, behind `compinit`; for fish, and for bash without that line, a file does.
    For example:

        underfed completion fish > ~/.config/fish/completions/underfed.fish
        underfed completion bash > ~/.local/share/bash-completion/completions/underfed

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    from underfed.cli.completion_script import script
    from underfed.report.page import say

    say(script(shell))
    return 0
