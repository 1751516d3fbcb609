"""Streams: habits 21 to 27."""

from __future__ import annotations

import json
import subprocess

import pytest
from habits_harness import LOOP, PY, Terminal, environment

ECHO = "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(b'got ' + line)\n"


def test_habit_21_stdin_from_pipe_and_file(room):
    script = room.script(ECHO)
    data = b"x\n\xff\0y\nno newline"
    room.both([PY, script], input=data)
    (room.folder / "input").write_bytes(data * 1000)
    for wrap in ([], room.prefix()):
        with open(room.folder / "input", "rb") as file:
            assert room.plain([*wrap, PY, script], stdin=file).stdout.count(b"got ") == data.count(b"\n") * 1000 + 1


def test_habit_21_stdin_read_by_the_command_stays_for_who_comes_after(room):
    """Two commands that share one file: neither loses a byte to us."""
    script = room.script("import os\nprint(os.read(0, 2))\n")
    (room.folder / "input").write_bytes(b"abcdef")
    with open(room.folder / "input", "rb") as file:
        assert room.under([PY, script], stdin=file).stdout == b"b'ab'\n"
        assert room.plain([PY, script], stdin=file).stdout == b"b'cd'\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_habit_21_closed_streams_stay_closed(room, closed):
    script = room.script(
        "import os\nopened = []\n"
        "for n in range(3):\n    try:\n        opened.append(os.readlink('/proc/self/fd/%d' % n))\n"
        "    except OSError as error:\n        opened.append(error.strerror)\n"
        "open('seen', 'a').write(repr([o if 'pipe' not in o else 'pipe' for o in opened]) + '\\n')\n"
    )
    for wrap in ([], room.prefix()):
        seen = room.plain(["bash", "-c", f'"$@" {closed}', "bash", *wrap, PY, script])
        assert seen.returncode == 0
        assert seen.stdout == b""
    plain, under = (room.folder / "seen").read_text().splitlines()
    assert plain == under


def test_habit_21_a_debugger_prompt_works(room):
    script = room.script("x = 41\nbreakpoint()\nprint('after', x + 1)\n")
    with Terminal([*room.prefix(), PY, script], cwd=room.folder) as terminal:
        terminal.expect(b"(Pdb) ")
        terminal.send(b"p x * 1000\n")
        terminal.expect(b"41000")
        terminal.send(b"c\n")
        terminal.expect(b"after 42")
        assert terminal.status() == 0


@pytest.mark.torch
def test_habit_22_stdout_is_the_commands_only(room):
    """Import, steps, a loader with workers and a failing step: not one byte of ours."""
    script = room.script(
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "model = torch.nn.Linear(4, 4)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "if __name__ == '__main__':\n"
        "    for (x,) in DataLoader(TensorDataset(torch.ones(64, 4)), batch_size=2, num_workers=2):\n"
        "        optimizer.zero_grad()\n        model(x).sum().backward()\n        optimizer.step()\n"
        "        print(tuple(x.shape))\n    model(torch.ones(3))\n"
    )
    plain, _ = room.both([PY, script])
    assert plain.returncode == 1


ISATTY = """
import os, sys
print([os.isatty(n) for n in range(3)], [s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)])
"""


def test_habit_23_isatty_is_what_it_was(room):
    script = room.script(ISATTY)
    plain, _ = room.both([PY, script])
    assert b"True" not in plain.stdout
    with Terminal([*room.prefix(), PY, script], cwd=room.folder) as terminal:
        terminal.expect(b"[True, True, True] [True, True, True]")
    redirected = ["bash", "-c", '"$@" > /dev/null 2> err', "bash"]
    tell = room.script("import os\nopen('seen', 'w').write(str([os.isatty(n) for n in range(3)]))\n", "tell.py")
    with Terminal([*redirected, *room.prefix(), PY, tell], cwd=room.folder) as terminal:
        assert terminal.status() == 0
    assert (room.folder / "seen").read_text() == "[True, False, False]"


@pytest.mark.torch
def test_habit_24_the_card_is_plain_where_nobody_wants_colour(room):
    loop = room.script(LOOP)
    seen = room.under([PY, loop])
    assert seen.stdout == b""
    assert b"\x1b" not in seen.stderr
    assert max(map(len, seen.stderr.decode().splitlines())) <= 200
    env = environment(TERM="xterm-256color", NO_COLOR="1", COLUMNS="80")
    with Terminal([*room.prefix(), PY, loop], cwd=room.folder, env=env) as terminal:
        assert terminal.status() == 0
        assert b"ecording" in terminal.seen
        assert b"\x1b[3" not in terminal.seen


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full", "2>&1 >/dev/null | true"])
def test_habit_25_broken_stderr_changes_nothing(room, redirect):
    for command in (["sh", "-c", "echo out; exit 14"], ["sh", "-c", "kill -TERM $$"]):
        line = f'"$@" {redirect}; echo ${{PIPESTATUS[0]}}'
        plain = room.plain(["bash", "-c", line, "bash", *command])
        under = room.plain(["bash", "-c", line, "bash", *room.prefix(), *command])
        assert under.stdout == plain.stdout


def test_habit_25_stdout_to_head(room):
    """A program that is ended by SIGPIPE, and one that gets EPIPE because Python ignores the signal."""
    for command in (["yes"], [PY, "-c", "while True: print('y')"]):
        line = '"$@" 2> err | head -1; echo ${PIPESTATUS[0]}'
        plain = room.plain(["bash", "-c", line, "bash", *command])
        under = room.plain(["bash", "-c", line, "bash", *room.prefix(), *command])
        assert under.stdout == plain.stdout
        err = (room.folder / "err").read_text()
        assert err.count("Traceback") == (command[0] == PY)


def test_habit_26_order_of_lines_is_unchanged(room):
    script = room.script(
        "import os, sys\nprint('first, held back')\nprint('second', file=sys.stderr)\nos.write(1, b'third\\n')\n"
        "print(os.environ.get('PYTHONUNBUFFERED'), sys.flags)\n"
    )
    merged = ["bash", "-c", '"$@" 2>&1', "bash"]
    plain = room.plain([*merged, PY, script]).stdout
    under = room.plain([*merged, *room.prefix(), PY, script]).stdout
    theirs = [line for line in under.splitlines() if not line.startswith(b"underfed:")]
    assert theirs == plain.splitlines()
    assert plain.startswith(b"second\nthird\nfirst")


def test_habit_27_a_report_on_stdout_only_when_asked_for(room):
    plain = room.plain(["echo", "theirs"])
    assert room.under(["echo", "theirs"]).stdout == plain.stdout
    asked = room.plain([*room.prefix(room.place(), "--json", "-"), "echo", "theirs"]).stdout
    assert asked.startswith(plain.stdout)
    assert json.loads(asked[len(plain.stdout) :])["schema"] == "underfed.diagnosis/1"
    room.plain([*room.prefix(room.place(), "--json", "file.json"), "echo", "theirs"])
    assert json.loads((room.folder / "file.json").read_text())["schema"] == "underfed.diagnosis/1"


def test_habit_27_json_without_its_folder_starts_nothing(room):
    seen = room.plain([*room.prefix(room.place(), "--json", "no/such/file.json"), "touch", "started"])
    assert seen.returncode == 2
    assert not (room.folder / "started").exists()


def test_habit_22_help_and_version_are_the_only_words_on_stdout(room):
    for words in (["run", "--help"], ["--version"]):
        done = subprocess.run([*room.tool, *words], capture_output=True, check=True, cwd=room.folder)
        assert done.stdout
        assert not done.stderr
