"""`attach --watch` on a real terminal: what it shows, what it leaves behind, and what it does to the run it watches."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_help import PATIENCE_S, UNDERFED, WAITS, Terminal, environment, target, terminal


def watching(pid: int | str, *words: str) -> list[str]:
    words = words if "--seconds" in words else ("--seconds", "1", *words)
    return [*UNDERFED, "attach", str(pid), "--watch", *words]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture(scope="module")
def waits() -> Iterator[subprocess.Popen[bytes]]:
    with target(WAITS) as process:
        yield process
        assert process.poll() is None, "no watch did anything to it"


def fits(term: Terminal) -> bool:
    """The page begins in the first row: nothing scrolled, so nothing was too long or too wide."""
    return term.lines[0].startswith("underfed")


def test_a_page_shows_the_verdict_follows_the_terminals_size_and_q_leaves_everything_as_it_was(
    waits: subprocess.Popen[bytes],
) -> None:
    with terminal(watching(waits.pid)) as term:
        term.sees("confidence")
        assert term.screen.alternate
        for wanted in (
            "data-bound (the loop waits for its input) since",
            "X3",
            "data 100 %",
            "CPU",
            "changes",
            "q quits",
        ):
            term.sees(wanted)
        assert fits(term)
        for columns, rows in ((60, 20), (132, 40), (20, 10), (80, 24)):
            term.size(columns, rows)
            term.until(lambda: fits(term) and "data-bound" in term.text, f"the page at {columns}x{rows}")
            assert len([line for line in term.lines if line.startswith("underfed")]) == 1
        term.send(b"q")
        assert term.end() == 0
        assert term.sane()
        assert b"input-made-on-training-thread" in term.raw.rpartition(b"\x1b[?1049l")[2], "the last verdict is said"
    assert waits.poll() is None
    assert state(waits.pid) in "SR"


@pytest.mark.parametrize(
    "how", ["ctrl-c", "SIGKILL", *(pytest.param(name, marks=pytest.mark.slow) for name in ("SIGTERM", "SIGHUP"))]
)
def test_however_the_view_ends_the_terminal_and_the_run_are_as_before(how: str, waits: subprocess.Popen[bytes]) -> None:
    with terminal(watching(waits.pid)) as term:
        term.sees("confidence")
        if how == "ctrl-c":
            term.send(b"\x03")
            assert term.end() == 0
            assert b"underfed: " in term.raw.rpartition(b"\x1b[?1049l")[2], "the last verdict is said"
        else:
            os.kill(term.process.pid, signal.Signals[how])
            assert term.end() == -signal.Signals[how]
        term.until(term.sane, "a sane terminal")
        assert b"Traceback" not in term.raw
    assert waits.poll() is None
    assert state(waits.pid) in "SR"
    deadline = time.monotonic() + PATIENCE_S
    while samplers(waits.pid):
        assert time.monotonic() < deadline, "a sampler outlived the view"
        time.sleep(0.05)


def samplers(pid: int) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"record" in words and str(pid).encode() in words:
            found.append(folder.name)
    return found


@pytest.mark.slow
def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(waits: subprocess.Popen[bytes]) -> None:
    # a shell is needed for job control; it is the terminal's session leader
    shell = ["bash", "--norc", "-i"]
    with terminal(shell, env=environment(PS1="prompt> ")) as term:
        term.sees("prompt>")
        modes = term.modes
        term.send((" ".join(watching(waits.pid)) + "\n").encode())
        term.sees("confidence")
        term.send(b"\x1a")
        term.until(lambda: not term.screen.alternate and not term.screen.cursor.hidden, "the terminal back")
        term.sees("Stopped")
        term.screen.reset()
        term.send(b"fg\n")
        term.until(lambda: term.screen.alternate and "confidence" in term.text, "the view again")
        term.send(b"q")
        term.until(lambda: not term.screen.alternate, "the end")
        term.send(b"exit\n")
        term.end()
        assert modes[3] == term.modes[3]
    assert state(waits.pid) in "SR"


def test_the_end_of_the_run_ends_the_view_with_one_line() -> None:
    with target(WAITS) as process, terminal(watching(process.pid)) as term:
        term.sees("data-bound")
        process.terminate()
        process.wait()
        assert term.end() == 0
        assert term.sane()
        said = term.raw.rpartition(b"\x1b[?1049l")[2].decode().split("\r\n")
        assert len([line for line in said if line]) == 1
        assert said[0].startswith(f"underfed: process {process.pid} has ended; last verdict: data-bound (X3) since")


def test_a_number_that_belongs_to_another_process_by_now_ends_the_view(waits: subprocess.Popen[bytes]) -> None:
    from underfed.live_view import watch
    from underfed.live_view.outside import Outside
    from underfed.observe.live.proc import start_and_state
    from underfed.observe.live.target import Target

    found = start_and_state(waits.pid)
    assert found is not None
    other = Target(waits.pid, found[0] - 1, waits.pid, None)  # the one that we were asked to watch began earlier
    outside = Outside(other, 1.0)
    seen = []
    deadline = time.monotonic() + PATIENCE_S
    while not seen and time.monotonic() < deadline:
        seen = [each for each in outside.drain() if hasattr(each, "diagnosis")]
        time.sleep(0.01)
    assert seen[0].ended == "exit"
    assert not seen[0].diagnosis.live.sampled.samples, "the stranger was looked at"
    done = watch.Watched(None, watch.State(title="", began=0, at=0), "exit")
    assert "its number now belongs to another process" in watch.ending(done, other)


@pytest.mark.slow
def test_elsewhere_it_is_a_line_for_each_new_verdict(tmp_path: Path) -> None:
    file = tmp_path / "verdicts.jsonl"
    with target(WAITS) as process:
        with subprocess.Popen(
            watching(process.pid, "--json", str(file), "--seconds", "3"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as view:
            said = lines_until(view, "data-bound, X3")
            os.kill(process.pid, signal.SIGSTOP)
            said += lines_until(view, "stopped")
            os.kill(process.pid, signal.SIGCONT)
            said += lines_until(view, "data-bound, X3")
            process.kill()
            process.wait()
            said += lines_until(view, "has ended")
            assert view.wait() == 0
            assert "Traceback" not in view.stderr.read()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == len(said) - 1
    for line, words in zip(lines, said[:-1], strict=True):
        assert line["verdict"]["text"] in words
        assert line["live"]["headline"] is None or line["live"]["headline"].partition(" (")[0] in words


def lines_until(view: subprocess.Popen[str], wanted: str) -> list[str]:
    assert view.stdout is not None
    found = [view.stdout.readline()]
    while wanted not in found[-1]:
        assert found[-1], f"it ended before {wanted!r}: {found}"
        found.append(view.stdout.readline())
    return found


@pytest.mark.slow
def test_json_lines_on_stdout_are_diagnoses_by_the_schema(waits: subprocess.Popen[bytes]) -> None:
    import jsonschema

    from underfed.diagnosis import json_schema

    with subprocess.Popen(
        watching(waits.pid, "--json", "-"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as view:
        jsonschema.validate(json.loads(view.stdout.readline()), json_schema())
        view.send_signal(signal.SIGINT)
        assert view.wait() == 0
        assert view.stdout.read() == "", "nothing but JSON"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "colour", "page"),
    [
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, True),
        ({"LANG": "C", "LC_ALL": "C"}, True, True),
    ],
)
def test_odd_terminals(extra: dict[str, str], colour: bool, page: bool, waits: subprocess.Popen[bytes]) -> None:
    with terminal(watching(waits.pid), env=environment(**extra)) as term:
        term.sees("confidence")
        term.send(b"\x03")
        assert term.end() == 0
        assert (b"\x1b[?1049h" in term.raw) == page
        assert (b"\x1b[" in term.raw) == page
        drawn = term.raw.partition(b"\x1b[?1049l")[0]
        assert (b"\x1b[1m" in drawn or b"\x1b[1;" in drawn) == colour
        assert drawn.isascii()


def test_names_that_hold_escape_sequences_do_nothing_to_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[?1049l\u202e"
    script = tmp_path / f"{evil}.py"
    try:
        script.write_text(WAITS)
    except OSError:
        pytest.skip("this file system takes no such name")
    words = [f"python{evil}", str(script), evil]
    with subprocess.Popen(
        words, executable=sys.executable, stdout=subprocess.PIPE, env=environment(), start_new_session=True
    ) as process:
        try:
            process.stdout.readline()
            with terminal(watching(process.pid), columns=60) as term:
                term.sees("data-bound")
                term.send(b"q")
                assert term.end() == 0
                assert term.sane()
                assert not term.screen.title
                assert "\u202e" not in term.raw.decode("utf-8", "replace")
                assert term.raw.count(b"\x1b[?1049l") == 1
        finally:
            process.kill()


def test_a_program_whose_name_holds_escape_sequences_is_refused_in_plain_words(tmp_path: Path) -> None:
    program = tmp_path / "a\x1b[31mb"
    program.symlink_to(shutil.which("sleep") or "/bin/sleep")
    with subprocess.Popen(["sleep", "600"], executable=program) as process:
        try:
            words = [*UNDERFED, "attach", str(process.pid), "--seconds", "0.5"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == 3
            assert "(ab) runs no Python" in done.stderr
            assert "\x1b" not in done.stderr
        finally:
            process.kill()


def test_what_cannot_be_watched_is_refused_before_the_screen_is_taken() -> None:
    with terminal([*UNDERFED, "attach", "99999999", "--watch"]) as term:
        assert term.end() == 2
        assert b"\x1b[?1049h" not in term.raw
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            with terminal(watching(process.pid)) as term:
                assert term.end() == 3
                assert term.sane()
                assert "runs no Python" in term.text
                assert b"Traceback" not in term.raw
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_without_permission_the_page_says_so_and_guesses_nothing(waits: subprocess.Popen[bytes]) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not there")
    prefix = ["setpriv", "--reuid", "65534", "--clear-groups"]
    if subprocess.run([*prefix, *UNDERFED, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("another user cannot start this Python")
    with terminal([*prefix, *watching(waits.pid)]) as term:
        term.sees("cannot tell")
        term.send(b"q")
        assert term.end() == 0
        assert term.sane()
        assert f"sudo underfed attach {waits.pid}" in " ".join(term.text.split())


@pytest.mark.slow
def test_a_terminal_that_takes_nothing_holds_nobody_up(waits: subprocess.Popen[bytes]) -> None:
    with terminal(watching(waits.pid)) as term:
        term.sees("confidence")
        term.send(b"\x13")  # Ctrl-S
        reader = threading.Event()
        reader.wait(2.5)  # some frames are due in this time
        term.send(b"\x11q")
        assert term.end() == 0
        assert term.sane()
