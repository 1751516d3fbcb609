"""Colour on a real terminal, plain text everywhere else, and an error where the stream is gone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from underfed.diagnosis import from_json
from underfed.report import card, first

CARDS = Path(__file__).parent / "cards"
STARVED = CARDS / "starved_on_cpu.json"
SHOW = """
import sys
from pathlib import Path
from underfed.diagnosis import from_json
from underfed.report import card, first
diagnosis = from_json(Path(sys.argv[1]).read_bytes())
first.write(diagnosis, sys.stderr)
card.write(diagnosis, sys.stderr)
print(sorted(name for name in sys.modules if name.split(".")[0] == "rich")[:1])
"""


def on_a_terminal(path: Path, **environment: str) -> tuple[str, str]:
    """Return what reached the terminal behind stderr, and stdout."""
    ours, theirs = pty.openpty()
    variables = {"PATH": os.environ["PATH"], "PYTHONIOENCODING": "utf-8", **environment}
    command = [sys.executable, "-c", SHOW, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=variables, text=True) as process:
        os.close(theirs)
        chunks = []
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux says so when the other side has closed
                break
            if not chunk:
                break
            chunks.append(chunk)
        assert process.stdout is not None
        out = process.stdout.read()
    os.close(ours)
    assert process.returncode == 0
    return b"".join(chunks).decode("utf-8").replace("\r\n", "\n"), out


def plain(path: Path) -> str:
    diagnosis = from_json(path.read_bytes())
    return first.render(diagnosis) + card.render(diagnosis)


def test_a_terminal_gets_colour_and_unicode() -> None:
    shown, _ = on_a_terminal(STARVED, TERM="xterm-256color")
    assert "\x1b[1;33mdata-bound\x1b[0m" in shown
    assert "█" in shown


@pytest.mark.parametrize(
    "environment",
    [
        {"TERM": "xterm-256color", "NO_COLOR": "1"},
        {"TERM": "dumb"},
        {},
        {"TERM": "xterm", "PYTHONIOENCODING": "latin-1"},
    ],
    ids=["NO_COLOR", "dumb", "no TERM", "latin-1"],
)
def test_a_terminal_that_wants_no_colour_gets_the_plain_card(environment: dict[str, str]) -> None:
    shown, modules = on_a_terminal(STARVED, **environment)
    assert shown == plain(STARVED)
    assert modules == "[]\n"  # the library for colour is not even loaded


@pytest.mark.parametrize("path", sorted(CARDS.glob("*.json")), ids=lambda path: path.stem)
def test_a_pipe_gets_the_plain_card(path: Path) -> None:
    variables = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-X", "utf8=0", "-c", SHOW, str(path)]
    done = subprocess.run(command, capture_output=True, env=variables, check=False)
    assert done.stderr.decode("ascii") == plain(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_device_raises_an_error_that_the_caller_can_catch() -> None:
    stream = Path("/dev/full").open("w", encoding="utf-8")
    with pytest.raises(OSError, match="No space left"):
        card.write(from_json(STARVED.read_bytes()), stream)
    with pytest.raises(OSError, match="No space left"):
        stream.close()


def test_a_closed_stream_raises_an_error_that_the_caller_can_catch(tmp_path: Path) -> None:
    stream = (tmp_path / "out").open("w", encoding="utf-8")
    stream.close()
    with pytest.raises(ValueError, match="closed file"):
        first.write(from_json(STARVED.read_bytes()), stream)


def test_places_below_the_current_folder_are_shown_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = STARVED.read_text(encoding="utf-8")
    here = from_json(text.replace("/data/job", str(tmp_path)).encode())
    beside = from_json(text.replace("/data/job", f"{tmp_path}x").encode())
    monkeypatch.chdir(tmp_path)
    assert "     train.py:" in card.render(here)
    assert f"{tmp_path}x/train.py:"[-60:] in card.render(beside)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "/train.py:" in card.render(here)
