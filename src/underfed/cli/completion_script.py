"""The completion of all commands as a script: cyclopts writes it, and the words behind `--` are left to the shell."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_type_hints

from cyclopts import App

from underfed.cli import COMMANDS
from underfed.errors import UsageError

#: Parameters that are paths but hold URLs, patterns or addresses as well, and so are typed as text.
_PATHS = {("read", "paths"), ("read", "facts"), ("report", "paths"), ("compare", "a"), ("compare", "b")} | {
    ("collect", "dst"),
    ("audit", "paths"),
    ("stale", "paths"),
}


def _choices() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the words that a parameter takes, where its type does not say them."""
    from underfed.playbook.switches import BY_RULE
    from underfed.report.rulebook import entries
    from underfed.trial.knobs import KNOBS

    every = list(entries())
    written = tuple(entry.id for entry in every if entry.written is not None)
    return {
        ("explain", "rule"): tuple(entry.id for entry in every),
        ("try", "rules"): (*BY_RULE, *KNOBS),
        ("audit", "select"): written,
        ("audit", "ignore"): written,
    }


def _typed(name: str, function: Callable[..., int]) -> Callable[..., int]:
    """Return a command with its parameters typed as what a shell shall offer for them."""
    hints, choices = get_type_hints(function, include_extras=True), _choices()
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        kind: Any = hints[parameter.name]
        if (name, parameter.name) in choices:
            kind = Literal[choices[name, parameter.name]]
        elif (name, parameter.name) in _PATHS:
            kind = Path
        if parameter.kind is parameter.VAR_POSITIONAL or "list" not in str(hints[parameter.name]):
            parameters.append(parameter.replace(annotation=kind))
        else:
            parameters.append(parameter.replace(annotation=list[kind] if kind is Path else kind))

    def stand_in(*_: Any, **__: Any) -> int:
        return 0

    stand_in.__doc__ = function.__doc__
    stand_in.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    stand_in.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return stand_in


_BASH = """
  local at_
  for ((at_ = 1; at_ < COMP_CWORD; at_++)); do
    if [[ "${COMP_WORDS[at_]}" == "--" ]]; then
      if declare -F _command_offset >/dev/null; then
        _command_offset $((at_ + 1))
      elif ((COMP_CWORD == at_ + 1)); then
        COMPREPLY=($(compgen -c -f -- "${COMP_WORDS[COMP_CWORD]}"))
      else
        COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
      fi
      return
    fi
  done
"""
_ZSH = """
  local dashes=${words[(i)--]}
  if (( dashes < CURRENT )); then
    words=("${(@)words[dashes + 1, -1]}")
    (( CURRENT -= dashes ))
    _normal
    return
  fi
"""
_FISH = """
# Words behind `--` are those of another command.
function __fish_underfed_dashes
    contains -- -- (commandline -opc)
end
function __fish_underfed_rest
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words)
    set -l rest $words[(math $at + 1)..-1]
    complete -C (string join ' ' -- (string escape -- $rest) (commandline -ct))
end
complete -c underfed -n __fish_underfed_dashes -f -a '(__fish_underfed_rest)'
"""
#: Where each addition goes: behind this line of the script.
_PLACES = {
    "bash": ("_underfed() {\n", _BASH),
    "zsh": ("_cyclopts_underfed() {\n", _ZSH),
    "fish": ("    set -l cmd (commandline -opc)\n", "    contains -- -- $cmd; and return 1\n"),
}


def script(shell: str) -> str:
    """Return the script; raises UsageError where cyclopts writes another than the one known here."""
    app = App(name="underfed", help="", version="")
    for name in COMMANDS:
        attribute = name + "_" if name == "try" else name
        app.command(_typed(name, getattr(import_module(f"underfed.cli.{attribute}"), attribute)), name=name)
    text = app.generate_completion(shell=shell)  # type: ignore[arg-type]
    place, more = _PLACES[shell]
    if place not in text:
        raise UsageError(
            f"completion: this version of cyclopts writes {shell} scripts of another form; update underfed"
        )
    text = text.replace(place, place + more)
    if shell == "bash":
        text = text.replace(
            "complete -F _underfed underfed", "complete -o bashdefault -o default -F _underfed underfed"
        )
    if shell == "fish":
        text += _FISH
    if shell == "zsh":
        text += "\ncompdef _cyclopts_underfed underfed\n"
    return text
