"""Exit status: habits 1 to 8."""

from __future__ import annotations

import resource

import pytest
from habits_harness import LOOP, PY, Terminal, can, environment, requires_root


@pytest.mark.parametrize("value", ["0", "1", "3", "42", "255", "-1", "256", "'a text'", "None"])
def test_habit_01_exit_code_passes(room, value):
    room.both([PY, "-c", f"import sys; sys.exit({value})"])


def test_habit_02_uncaught_exception_has_one_traceback_and_no_frame_of_ours(room):
    script = room.script("def f():\n    raise ValueError('planted')\nf()\n")
    plain, under = room.both([PY, script])
    assert plain.returncode == 1
    assert under.stderr.count(b"Traceback") == 1
    assert b"observe" not in under.stderr


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "ABRT", "HUP", "QUIT", "USR1", "PIPE"])
def test_habit_03_death_by_signal(room, name):
    restore = "" if name == "KILL" else f"signal.signal(signal.SIG{name}, signal.SIG_DFL); "
    command = [PY, "-c", f"import os, signal; {restore}os.kill(os.getpid(), signal.SIG{name})"]
    plain, _ = room.both(command)
    assert plain.returncode < 0
    shell = ["bash", "-c", '"$@"; echo $?', "bash"]
    seen = room.plain([*shell, *room.prefix(), *command])
    assert seen.stdout == b"%d\n" % (128 - plain.returncode)


def test_habit_03_no_second_core_file(room):
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]

    def cores(wrap: list[str]) -> int:
        folder = room.folder / ("under" if wrap else "plain")
        folder.mkdir()
        command = [*wrap, "sh", "-c", "kill -SEGV $$"]
        room.plain(command, cwd=folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)))
        return len(list(folder.iterdir()))

    assert cores(room.prefix()) == cores([])


def test_habit_04_ctrl_c_ends_a_shell_loop(room):
    script = room.script("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    loop = 'for i in 1 2 3; do "$@"; echo went on; done'
    with Terminal(["bash", "-c", loop, "bash", *room.prefix(), PY, script], cwd=room.folder) as terminal:
        terminal.expect(b"ready")
        terminal.send(b"\x03")
        assert terminal.status() == -2
    assert b"went on" not in terminal.seen
    assert b"KeyboardInterrupt" in terminal.seen


def test_habit_05_os_exit_passes(room):
    plain, _ = room.both([PY, "-c", "import os; os._exit(7)"])
    assert plain.returncode == 7


@pytest.mark.torch
def test_habit_05_os_exit_leaves_a_readable_recording(room):
    from underfed.recording.read import read

    script = room.script(LOOP + "import os\nos._exit(7)\n")
    _, under = room.both([PY, script])
    assert under.returncode == 7
    assert read(under.recording)


def test_habit_06_codes_of_a_shell(room):
    """127, 126 and one line; the folder made for the run is gone again."""
    not_executable = room.script("echo no\n", "plain.txt")
    lost = room.script("#!/nowhere/python\n", "lost.sh", 0o755)
    garbage = room.folder / "garbage"
    garbage.write_bytes(b"\x7fNOT\0\1\2\3\n")
    garbage.chmod(0o755)
    for word, code in [
        ("no-such-command", 127),
        (lost, 127),
        (not_executable, 126),
        (str(room.folder), 126),
        (garbage, 126),
    ]:
        shell = room.plain(["bash", "-c", '"$0"', word])
        seen = room.under([word])
        assert seen.returncode == shell.returncode == code
        assert len(seen.stderr.splitlines()) == len(seen.ours) == 1
        assert not seen.recording.exists()


@pytest.mark.parametrize(
    "words", [["--nonsense"], ["--window", "minus"], ["--window", "0"], ["--steps", "0"], ["--steps", "x"]]
)
def test_habit_06_bad_option_of_ours_starts_nothing(room, words):
    marker = room.folder / "started"
    seen = room.plain([*room.tool, "run", *words, "--", "touch", str(marker)])
    assert seen.returncode == 2
    assert len(seen.stderr.splitlines()) == 1
    assert not marker.exists()


def test_habit_06_no_command(room):
    seen = room.plain([*room.tool, "run"])
    assert (seen.returncode, seen.stdout) == (2, b"")
    assert b"underfed run -- python" in seen.stderr


@pytest.mark.parametrize(
    "fault",
    [
        "raise RuntimeError('planted')",
        "import no_such_module",
        "def install(folder, options): raise SystemExit(9)",
        "syntax error",
    ],
)
def test_habit_07_fault_of_the_agent(planted, fault):
    planted.agent(fault + "\n")
    plain, under = planted.both(
        [PY, "-c", "import torch; print(torch.loaded)"], env=environment(PYTHONPATH=planted.library)
    )
    assert plain.stdout == b"True\n"
    assert under.returncode == 0
    assert b"planted" not in under.stderr


@pytest.mark.parametrize("where", ["__init__", "tick", "finish"])
def test_habit_07_fault_of_the_watch_is_one_line(planted, where):
    methods = {"__init__": "self, *a, **k", "tick": "self", "finish": "self, code, signal"}
    fault = "raise RuntimeError(chr(7) + chr(10) + chr(27) + 'planted')"
    planted.watch("".join(f"    def {m}({args}): {fault if m == where else 'pass'}\n" for m, args in methods.items()))
    _, under = planted.both([PY, "-c", "import time; time.sleep(0.6); raise SystemExit(3)"])
    assert under.returncode == 3
    assert sum("planted" in line for line in under.ours) == 1
    assert b"\x1b" not in under.stderr
    assert b"\x07" not in under.stderr


def test_habit_07_fault_of_the_inject_folder(planted):
    """Our own start-up code is broken: Python starts as without it."""
    planted.script("syntax error\n", "tool/underfed/observe/inject/_underfed_boot.py")
    planted.both([PY, "-c", "import os, sys; print(sys.path, os.environ.get('PYTHONPATH'))"])


@pytest.mark.parametrize("out", ["/proc/no/such", "/dev/null/below"])
def test_habit_07_unwritable_place(room, out):
    command = [PY, "-c", "raise SystemExit(4)"]
    seen = room.plain([*room.tool, "run", "--out", out, "--", *command])
    assert seen.returncode == 4
    assert len(seen.ours) == 1
    assert "nothing is recorded" in seen.ours[0]


@requires_root
@pytest.mark.skipif(not can("unshare", "-m", "true"), reason="needs mount namespaces")
@pytest.mark.parametrize("options", ["size=4k", "size=64k,nr_inodes=3"])
def test_habit_07_full_disk(room, options):
    """A place that takes no more bytes, or no more files, before or during the run."""
    (room.folder / "small").mkdir()
    fill = f"mount -t tmpfs -o {options} none small && (cat /dev/zero > small/fill; touch small/b) 2>/dev/null; "
    rest = '"$@" --out small/d -- sh -c "exit 6"; echo $?'
    seen = room.plain(["unshare", "-m", "sh", "-c", fill + rest, "sh", *room.tool, "run"])
    assert seen.stdout == b"6\n"
    assert b"Traceback" not in seen.stderr


def test_habit_08_exec_keeps_pid_and_passes_the_status(room):
    script = room.script(
        "import os\nprint(os.getpid(), flush=True)\nos.execv('/bin/sh', ['sh', '-c', 'echo $$; exit 9'])\n"
    )
    seen = room.under([PY, script])
    assert seen.returncode == 9
    first, second = seen.stdout.split()
    assert first == second


def test_habit_08_parents_in_python_see_the_same(room):
    command = ["sh", "-c", "kill -USR2 $$"]
    for call in (
        "subprocess.call(sys.argv[1:])",
        "os.system(shlex.join(sys.argv[1:]))",
        "os.spawnvp(0, sys.argv[1], sys.argv[1:])",
    ):
        parent = [PY, "-c", f"import os, shlex, subprocess, sys; print({call})"]
        assert room.plain([*parent, *command]).stdout == room.plain([*parent, *room.prefix(), *command]).stdout
