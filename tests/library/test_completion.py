"""Completion in the shells themselves: what TAB offers."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from underfed.cli import COMMANDS, main
from underfed.cli.completion_script import script
from underfed.playbook.registry import RULES

SHELLS = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
    for name in ("bash", "zsh", "fish")
]


class Terminal:
    """An interactive shell on a terminal, with our completion loaded."""

    def __init__(self, shell: str, folder: Path) -> None:
        (folder / "script").write_text(script(shell), encoding="utf-8")
        words = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
        environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": str(folder), "PS1": "", "LC_ALL": "C"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(words[0], words, environment)
        setup = {
            "bash": "bind 'set completion-query-items 0'; bind 'set page-completions off'; source ./script",
            "zsh": "unsetopt zle_bracketed_paste 2>/dev/null; autoload -U compinit; compinit -u -D; source ./script; "
            "LISTMAX=10000",
        }
        self.ask(f"{setup[shell]}; PS1=; echo rea''dy\n", "ready")

    def ask(self, keys: str, wanted: str) -> str:
        """Type keys and return what the terminal shows until `wanted` is in it."""
        os.write(self.fd, keys.encode())
        seen, give_up = "", time.monotonic() + 120
        while wanted not in seen:
            assert time.monotonic() < give_up, seen
            if select.select([self.fd], [], [], 1.0)[0]:
                seen += os.read(self.fd, 65536).decode(errors="replace")
        return seen

    def close(self) -> None:
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def bash_offers(line: str, folder: Path) -> list[str]:
    """Return what our function offers for the last word of a line, as bash's own machinery calls it."""
    (folder / "script").write_text(script("bash"), encoding="utf-8")
    words = line.split(" ")
    source = f"""
source ./script
COMP_WORDS=({" ".join(repr(word) for word in words)})
COMP_CWORD={len(words) - 1}
_underfed underfed "${{COMP_WORDS[COMP_CWORD]}}" x
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "--norc", "-c", source], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def fish_offers(line: str, folder: Path) -> list[str]:
    (folder / "script").write_text(script("fish"), encoding="utf-8")
    source = f"source ./script; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", source],
        cwd=folder,
        env={**os.environ, "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return [row.split("\t")[0] for row in done.stdout.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "trace.json").write_text("")
    (tmp_path / "recording").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "offers", [pytest.param(bash_offers, id="bash"), pytest.param(fish_offers, id="fish", marks=SHELLS[2].marks)]
)
def test_commands_options_values_rules_and_paths(offers, folder: Path) -> None:
    assert set(COMMANDS) <= set(offers("underfed ", folder))
    assert {"--window", "--steps", "--out"} <= set(offers("underfed run --", folder))
    assert {"html", "md", "perfetto"} <= set(offers("underfed report --format ", folder))
    assert {rule.id for rule in RULES if rule.id.startswith("X1")} <= set(offers("underfed explain X1", folder))
    assert {"T4", "prefetch_factor"} <= set(offers("underfed try ", folder))
    assert "T14" in offers("underfed audit --select T1", folder)
    assert "trace.json" in offers("underfed read tr", folder)
    assert [word.rstrip("/") for word in offers("underfed report rec", folder)] == ["recording"]
    assert "train.py" in offers("underfed run -- cat tr", folder)
    assert not {"--window", "T4"} & set(offers("underfed try T4 -- cat ", folder))


@pytest.mark.parametrize("shell", SHELLS[:2])
def test_a_tab_in_a_terminal(shell: str, folder: Path) -> None:
    terminal = Terminal(shell, folder)
    try:
        assert "underfed explain" in terminal.ask("underfed expl\t", "explain")
        seen = terminal.ask("X1\t\t", "X13")
        assert {"X10", "X11", "X12"} <= set(re.findall(r"X\d+", seen))
        terminal.ask("\x15", "")  # takes the line away
        assert "train.py" in terminal.ask("underfed run -- cat trai\t", "train.py")
        terminal.ask("\x15", "")
        assert "trace.json" in terminal.ask("underfed read trac\t", "trace.json")
    finally:
        terminal.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_what_the_shell_takes_without_a_word(shell: str, folder: Path) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "underfed", "completion", shell], capture_output=True, text=True, check=True
    )
    (folder / "printed").write_text(printed.stdout)
    load = {"zsh": "autoload -U compinit; compinit -u -D; source ./printed"}.get(shell, "source ./printed")
    quiet = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell]
    done = subprocess.run([shell, quiet, "-c", load], cwd=folder, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_another_shell_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
