"""`run --live` on a real terminal: the last row is ours while the command runs, everything else stays the command's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live_help import LOOP, environment, live, terminal

pytest.importorskip("torch")

ENDLESS = "1000000"


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(LOOP)
    return str(path)


def test_the_last_row_is_ours_and_the_commands_lines_are_all_there_in_their_order(tmp_path: Path, script: str) -> None:
    with terminal(live(tmp_path, sys.executable, script, "300"), rows=12) as term:
        term.until(lambda: "a step" in term.lines[-1] and "since" in term.lines[-1], "the row")
        assert (term.screen.margins.top, term.screen.margins.bottom) == (0, 10)
        assert any("bar " in line for line in term.lines[:-1])
        assert not any("underfed  " in line for line in term.lines[:-1])
        for columns, rows in ((60, 8), (100, 20), (80, 12)):
            term.size(columns, rows)
            term.until(lambda: term.lines[-1].startswith("underfed  "), f"the row at {columns}x{rows}")
        assert term.end() == 0
        assert term.sane()
        ours = [part for part in term.raw.split(b"\x1b7") if b"\x1b8" in part]
        rest = term.raw
        for part in ours:
            rest = rest.replace(b"\x1b7" + part.partition(b"\x1b8")[0] + b"\x1b8", b"")
        lines = [line for line in rest.replace(b"\x1bD\x1b[A", b"").split(b"\r\n") if b"line " in line]
        assert [int(line.rpartition(b"line ")[2]) for line in lines] == list(range(0, 300, 5))
        assert b"last words" in rest


def test_streams_stay_terminals_and_stdin_is_the_commands(tmp_path: Path) -> None:
    code = "import os\nprint([os.isatty(n) for n in (0, 1, 2)])\nprint('got', input())"
    with terminal(live(tmp_path, sys.executable, "-c", code)) as term:
        term.sees("[True, True, True]")
        term.send(b"q\n")
        term.sees("got q")
        assert term.end() == 0
        assert term.sane()


def test_ctrl_c_reaches_the_command_once_and_its_status_is_kept(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\nseen = []\nsignal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\n"
        "while not seen: time.sleep(0.01)\n"
        "time.sleep(1)\nprint('interrupts', len(seen))\nsys.exit(123)"
    )
    with terminal(live(tmp_path, sys.executable, "-c", code)) as term:
        term.sees("ready")
        term.until(lambda: term.lines[-1].startswith("underfed"), "the row")
        term.send(b"\x03")
        assert term.end() == 123
        assert "interrupts 1" in term.text
        assert term.sane()


@pytest.mark.parametrize("how", ["--live", pytest.param("--live=screen", marks=pytest.mark.slow)])
def test_a_view_that_is_killed_gives_the_terminal_back_and_the_command_goes_on(
    how: str, tmp_path: Path, script: str
) -> None:
    redirect = f"> {tmp_path / 'out'} 2>&1" if how == "--live=screen" else None
    with terminal(live(tmp_path, sys.executable, script, ENDLESS, how=how), redirect=redirect) as term:
        term.sees("a step" if redirect is None else "steps/s")
        (child,) = [
            int(pid)
            for pid in Path(f"/proc/{term.process.pid}/task/{term.process.pid}/children").read_text().split()
            if script in Path(f"/proc/{pid}/cmdline").read_text()
        ]
        try:
            os.kill(term.process.pid, signal.SIGKILL)
            term.until(term.sane, "a sane terminal")
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.slow
def test_ctrl_z_gives_the_row_back_and_fg_takes_it_again(tmp_path: Path, script: str) -> None:
    with terminal(["bash", "--norc", "-i"], env=environment(PS1="prompt> ")) as term:
        term.sees("prompt>")
        term.send((" ".join(live(tmp_path, sys.executable, script, ENDLESS, "quiet")) + "\n").encode())
        term.until(lambda: term.lines[-1].startswith("underfed"), "the row")
        term.send(b"\x1a")
        term.sees("Stopped")
        term.until(lambda: term.screen.margins is None or term.screen.margins.bottom == 23, "the whole terminal")
        assert not term.lines[-1].startswith("underfed")
        term.send(b"fg\n")
        term.until(lambda: term.lines[-1].startswith("underfed"), "the row again")
        term.send(b"\x03")
        term.until(lambda: term.screen.margins is None or term.screen.margins.bottom == 23, "the whole terminal")
        term.send(b"exit\n")
        term.end()


def test_the_screen_is_refused_where_it_would_cover_what_the_command_writes(tmp_path: Path, script: str) -> None:
    with terminal(live(tmp_path, sys.executable, script, "300", how="--live=screen")) as term:
        assert term.end() == 2
        assert "train.log" in term.text
        assert not (tmp_path / "recording").exists(), "nothing was started"


@pytest.mark.slow
def test_the_screen_is_taken_where_the_command_writes_elsewhere(tmp_path: Path, script: str) -> None:
    out = tmp_path / "out"
    command = live(tmp_path, sys.executable, script, "500", how="--live=screen")
    with terminal(command, redirect=f"> {out} 2>&1") as term:
        for wanted in ("host-bound", "X9", "steps/s", "stall", "CPU", "changes"):
            term.sees(wanted)
        assert term.screen.alternate
        assert term.lines[0].startswith("underfed run python")
        assert term.end() == 0
        assert term.sane()
    assert b"last words" in out.read_bytes()


def test_without_any_terminal_the_command_just_runs(tmp_path: Path) -> None:
    for at, how in enumerate(("--live", "--live=screen")):
        done = subprocess.run(
            live(tmp_path / str(at), sys.executable, "-c", "print('out')", how=how),
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        assert (done.returncode, done.stdout) == (0, "out\n"), done.stderr
        assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("", 0),
        pytest.param("import torch", 0, marks=pytest.mark.slow),
        ("raise SystemExit(7)", 7),
        ("import os; os.abort()", -6),
    ],
)
def test_a_run_without_steps_or_that_ends_at_once(code: str, status: int, tmp_path: Path) -> None:
    with terminal(live(tmp_path, sys.executable, "-c", code)) as term:
        assert term.end() == status
        assert term.sane()
        assert b"Traceback" not in term.raw
        assert b"fault of underfed" not in term.raw


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "row"), [({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, True), ({"LANG": "C", "LC_ALL": "C"}, True)]
)
def test_odd_terminals(extra: dict[str, str], row: bool, tmp_path: Path, script: str) -> None:
    with terminal(live(tmp_path, sys.executable, script, "100", "quiet"), env=environment(**extra)) as term:
        assert term.end() == 0
        assert term.sane()
        drawn = [part.partition(b"\x1b8")[0] for part in term.raw.split(b"\x1b7")[1:]]
        assert bool(drawn) == row
        assert all(part.isascii() for part in drawn)


@pytest.mark.slow
def test_a_terminal_of_three_rows_has_none_to_spare(tmp_path: Path, script: str) -> None:
    with terminal(live(tmp_path, sys.executable, script, "60"), rows=3) as term:
        assert term.end() == 0
        assert b"\x1b7" not in term.raw


@pytest.mark.slow
def test_a_command_in_the_background_leaves_the_terminal_alone(tmp_path: Path, script: str) -> None:
    words = " ".join(live(tmp_path, sys.executable, script, "60", "quiet"))
    with terminal(["bash", "--norc", "-i"], env=environment(PS1="prompt> ")) as term:
        term.sees("prompt>")
        term.send((words + " & wait\n").encode())
        term.sees("last words")
        term.send(b"exit\n")
        term.end()
        assert b"\x1b7" not in term.raw
