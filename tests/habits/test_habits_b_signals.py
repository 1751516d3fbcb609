"""Signals: habits 9 to 20."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pytest
from habits_harness import PATIENCE_S, PY, Terminal, can, environment, process_state, wait_for

#: Counts one signal (first word) and ends with a code (second word), half a second after the first delivery.
COUNT = """
import signal, sys, time
signo, code, seen = getattr(signal, 'SIG' + sys.argv[1]), int(sys.argv[2]), []
signal.signal(signo, lambda s, f: seen.append(time.monotonic()))
print('ready', flush=True)
while not seen or time.monotonic() - seen[0] < 0.5:
    time.sleep(0.02)
print('count', len(seen), flush=True)
sys.exit(code)
"""

PID1 = ["unshare", "-pf", "--mount-proc"]


def under_with_pid(room, command, **how):
    """Start below `underfed run`; return the process once the command said it was ready."""
    process = room.start([*room.prefix(), *command], **how)
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("code", [0, 123, 130])
def test_habits_09_10_ctrl_c_reaches_the_command_once_and_its_own_status_counts(room, code):
    script = room.script(COUNT)
    for wrap in ([], room.prefix()):
        with Terminal([*wrap, PY, script, "INT", str(code)], cwd=room.folder) as terminal:
            terminal.expect(b"ready")
            terminal.send(b"\x03")
            terminal.expect(b"count 1\r\n")
            assert terminal.status() == code


def test_habit_09_quit_from_the_keyboard(room):
    script = room.script(COUNT)
    with Terminal([*room.prefix(), PY, script, "QUIT", "3"], cwd=room.folder) as terminal:
        terminal.expect(b"ready")
        terminal.send(b"\x1c")
        terminal.expect(b"count 1\r\n")
        assert terminal.status() == 3


def test_habit_11_the_second_ctrl_c_reaches_the_command_too(room):
    script = room.script(
        "import signal, sys, time\n"
        "def second(s, f):\n    print('second', flush=True)\n    sys.exit(5)\n"
        "def first(s, f):\n    signal.signal(s, second)\n    print('saving', flush=True)\n    time.sleep(60)\n"
        "signal.signal(signal.SIGINT, first)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    with Terminal([*room.prefix(), PY, script], cwd=room.folder) as terminal:
        terminal.expect(b"ready")
        terminal.send(b"\x03")
        terminal.expect(b"saving")
        terminal.send(b"\x03")
        terminal.expect(b"second")
        assert terminal.status() == 5


HANGS = """
    def __init__(self, *a, **k): pass
    def tick(self): pass
    def finish(self, code, signal):
        import sys, time
        print('closing', file=sys.stderr, flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("during", [0, 1, 4])
def test_habit_11_ctrl_c_cuts_our_ending_but_not_the_status(planted, during):
    """Without an interrupt before, one is enough; after one, it takes the third; later ones always count anew."""
    planted.watch(HANGS)
    script = planted.script(
        "import signal, sys, time\nseen = []\n"
        "signal.signal(signal.SIGINT, lambda s, f: print('got', len(seen), flush=True) or seen.append(s))\n"
        f"print('ready', flush=True)\nwhile len(seen) < {during}:\n    time.sleep(0.02)\nsys.exit(44)\n"
    )
    with Terminal([*planted.prefix(), PY, script], cwd=planted.folder) as terminal:
        terminal.expect(b"ready")
        for n in range(during):
            terminal.send(b"\x03")
            terminal.expect(b"got %d" % n)
        terminal.expect(b"closing")
        for _ in range({0: 1, 1: 2, 4: 1}[during]):
            assert terminal.process.poll() is None
            time.sleep(0.2)
            terminal.send(b"\x03")
        assert terminal.status() == 44
    assert b"cut short" in terminal.seen


def test_habit_11_a_hang_of_ours_does_not_hold_the_status(planted):
    """Ten seconds without progress end our ending by themselves."""
    planted.watch(HANGS)
    _, under = planted.both(["sh", "-c", "exit 8"])
    assert any("cut short" in line for line in under.ours)


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "USR1", "USR2", "QUIT", "WINCH", "ALRM"])
def test_habits_12_13_15_a_signal_sent_to_run_alone_is_passed_on_once(room, name):
    script = room.script(COUNT)
    process = under_with_pid(room, [PY, script, name, "17"], start_new_session=True)
    process.send_signal(getattr(signal, "SIG" + name))
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert out == b"count 1\n"
    assert process.returncode == 17


def test_habit_12_default_sigint_ends_both(room):
    script = room.script("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    process = under_with_pid(room, [PY, script])
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT
    assert err.count(b"Traceback") == 1


@pytest.mark.parametrize("seconds", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_habit_13_a_checkpoint_in_the_term_handler_is_finished(room, seconds):
    script = room.script(
        "import signal, sys, time\n"
        f"def save(s, f):\n    time.sleep({seconds})\n    open('checkpoint', 'w').write('whole')\n    sys.exit(21)\n"
        "signal.signal(signal.SIGTERM, save)\nprint('ready', flush=True)\ntime.sleep(90)\n"
    )
    process = under_with_pid(room, [PY, script])
    process.terminate()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 21
    assert (room.folder / "checkpoint").read_text() == "whole"


SLOW_WRITE = "import time\nprint('ready', flush=True)\ntime.sleep(1)\nopen('done', 'w').write('x')\n"


def test_habit_14_nohup_survives_the_terminal(room):
    script = room.script(SLOW_WRITE)
    for wrap in ([], room.prefix()):
        (room.folder / "done").unlink(missing_ok=True)
        inner = 'nohup "$@" > out 2>&1 & echo started $!; wait'
        with Terminal(["bash", "-c", inner, "bash", *wrap, PY, script], cwd=room.folder) as terminal:
            at = terminal.expect(b"started ")
            terminal.expect(b"\n", at)
            wait_for(lambda: "ready" in (room.folder / "out").read_text())
            terminal.hang_up()
            wait_for((room.folder / "done").exists)


def test_habit_14_a_hang_up_reaches_a_command_that_does_not_ignore_it(room):
    """As leader of the session (ssh -t HOST underfed run ...) we alone are told; as a job of a shell the group is."""
    script = room.script(
        COUNT.replace("print('count', len(seen), flush=True)", "open('count', 'w').write(str(len(seen)))")
    )
    for outer in ([], ["bash", "-ic", '"$@"; exit', "bash"]):
        counts = []
        for wrap in ([], room.prefix()):
            (room.folder / "count").unlink(missing_ok=True)
            with Terminal([*outer, *wrap, PY, script, "HUP", "0"], cwd=room.folder) as terminal:
                terminal.expect(b"ready")
                if wrap and outer:
                    wait_for(lambda: witness_listens(terminal.process.pid))
                terminal.hang_up()
                wait_for(lambda: (room.folder / "count").exists() and (room.folder / "count").read_text())
            counts.append((room.folder / "count").read_text())
        # A shell that ends signals its jobs once more, which the kernel may fold into the first.
        assert set(counts) <= ({"1", "2"} if outer else {"1"})


def descendants(pid: int) -> list[int]:
    children = [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [d for c in children for d in descendants(c)]


def witness_listens(ancestor: int) -> bool:
    """Tell whether the process that notes group signals waits for them: its start-up files are closed again."""
    for pid in descendants(ancestor):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"notes the signals" in command and process_state(pid) == "S":
                return sorted(p.name for p in Path(f"/proc/{pid}/fd").iterdir()) == ["0", "1", "2"]
    return False


@pytest.mark.parametrize("name", ["INT", "TERM", "USR1"])
def test_habit_15_a_signal_to_the_whole_group_arrives_once(room, name):
    """As `kill %1`, `timeout` and Slurm send it."""
    script = room.script(COUNT)
    process = under_with_pid(room, [PY, script, name, "0"], start_new_session=True)
    wait_for(lambda: witness_listens(process.pid))
    os.killpg(process.pid, getattr(signal, "SIG" + name))
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (out, process.returncode) == (b"count 1\n", 0)


def test_habit_18_the_witness_does_not_outlive_us(room):
    script = room.script("import time\nprint('ready', flush=True)\ntime.sleep(3)\n")
    process = under_with_pid(room, [PY, script])
    wait_for(lambda: witness_listens(process.pid))
    ours = descendants(process.pid)
    process.kill()
    process.wait()
    wait_for(lambda: all(process_state(pid) in ("", "Z") for pid in ours))
    process.stdout.close()
    process.stderr.close()


STATE = """
import signal, sys
def state():
    handlers = [str(signal.getsignal(s)) for s in sorted(signal.valid_signals())]
    timers = [str(signal.getitimer(i)) for i in (0, 1, 2)]
    return handlers + timers + [str(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))]
before = state()
{work}
print(before == state(), before)
"""


def test_habit_16_handlers_timers_and_mask_are_what_they_were(room):
    room.both([PY, room.script(STATE.format(work=""))])


@pytest.mark.torch
def test_habit_16_the_agent_installs_no_handler_and_one_set_later_stays(room):
    loop = """
import torch
handler = lambda s, f: None
for s in (signal.SIGUSR1, signal.SIGTERM, signal.SIGALRM, signal.SIGPROF):
    signal.signal(s, handler)
before = state()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
    script = room.script(
        STATE.format(work=loop).replace("print(before == state(), before)", "print(before == state())")
    )
    plain, _ = room.both([PY, script])
    assert plain.stdout == b"True\n"


def test_habit_17_ctrl_z_stops_both_and_fg_goes_on(room):
    script = room.script(
        "import os, sys, time\nprint('pid', os.getpid(), os.getppid(), '.', flush=True)\n"
        "while not os.path.exists('go'):\n    time.sleep(0.02)\nprint('went on', flush=True)\nsys.exit(12)\n"
    )
    env = environment(TERM="dumb", PS1="prompt> ", HISTFILE="")
    with Terminal(["bash", "--norc", "-i"], cwd=room.folder, env=env) as terminal:
        terminal.expect(b"prompt> ")
        terminal.send(" ".join([*room.prefix(), PY, script]).encode() + b"\n")
        at = terminal.expect(b"pid ", terminal.expect(b"recording to"))
        terminal.expect(b" .", at)
        command, run = (int(word) for word in terminal.seen[at:].split()[:2])
        terminal.send(b"\x1a")
        terminal.expect(b"Stopped")
        wait_for(lambda: process_state(command) == process_state(run) == "T")
        terminal.send(b"bg\n")
        wait_for(lambda: process_state(command) in ("S", "R") and process_state(run) in ("S", "R"))
        terminal.send(b"kill -STOP %1\n")
        wait_for(lambda: process_state(command) == process_state(run) == "T")
        (room.folder / "go").touch()
        terminal.send(b"fg\n")
        terminal.expect(b"went on")
        terminal.send(b"echo code $?\n")
        terminal.expect(b"code 12")


def test_habit_18_kill_of_run_leaves_the_command_alone(room):
    script = room.script("import os\nprint('ready', flush=True)\nprint(os.getpid(), flush=True)\n" + SLOW_WRITE)
    process = under_with_pid(room, [PY, script])
    command = int(process.stdout.readline())
    process.kill()
    process.wait()
    assert process_state(command) in ("R", "S")
    wait_for((room.folder / "done").exists)
    wait_for(lambda: process_state(command) in ("", "Z"))  # Z only as long as this machine's process 1 takes its time
    process.stdout.close()
    process.stderr.close()


def test_habit_19_killed_command_is_137_and_said_so(room):
    seen = room.under(["bash", "-c", "kill -9 $$"])
    assert seen.returncode == -9
    assert json.loads((seen.recording / "end.json").read_text())["signal"] == 9
    assert any("SIGKILL" in line for line in seen.ours)


@pytest.mark.skipif(not can(*PID1, "true"), reason="needs PID namespaces (root, or user namespaces)")
def test_habit_20_as_process_1_children_are_reaped_and_the_status_passes(room):
    """Orphans of the command come to us; none stays a zombie."""
    script = room.script(
        "import os, pathlib, subprocess, sys, time\n"
        "for _ in range(20):\n    subprocess.run(['sh', '-c', 'sleep 0.1 &'])\n"
        "def zombies():\n"
        "    states = [p.read_text().rpartition(')')[2].split() for p in pathlib.Path('/proc').glob('[0-9]*/stat')]\n"
        "    return [s for s in states if s[0] == 'Z' and s[1] == '1']\n"
        "end = time.monotonic() + 60\ntime.sleep(0.3)\n"
        "while zombies() and time.monotonic() < end:\n    time.sleep(0.05)\n"
        "print(os.getppid(), len(zombies()), flush=True)\nsys.exit(33)\n"
    )
    seen = room.plain([*PID1, *room.prefix(), PY, script])
    assert seen.stdout == b"1 0\n"
    assert seen.returncode == 33


@pytest.mark.skipif(not can(*PID1, "true"), reason="needs PID namespaces (root, or user namespaces)")
def test_habit_20_as_process_1_signals_are_passed_on_and_death_by_signal_is_a_code(room):
    script = room.script(COUNT.replace("while not seen", "import os; os.kill(1, signo)\nwhile not seen"))
    seen = room.plain([*PID1, *room.prefix(), PY, script, "TERM", "19"])
    assert (seen.stdout, seen.returncode) == (b"ready\ncount 1\n", 19)
    seen = room.plain([*PID1, *room.prefix(), "sh", "-c", "kill -TERM $$"])
    assert seen.returncode == 128 + signal.SIGTERM


def test_habit_15_sigchld_ignored_by_our_parent_does_not_lose_the_status(room):
    """Some supervisors start programs with SIGCHLD ignored; the kernel then keeps no status of children."""
    outer = [
        PY,
        "-c",
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])",
    ]
    seen = room.plain([*outer, *room.prefix(), "sh", "-c", "exit 23"])
    assert seen.returncode == 23


def test_habit_15_an_alarm_set_before_us_is_the_commands(room):
    """`perl -e 'alarm 1; exec @ARGV'` as a poor man's timeout."""
    outer = [PY, "-c", "import os, signal, sys; signal.alarm(1); os.execvp(sys.argv[1], sys.argv[1:])"]
    seen = room.plain([*outer, *room.prefix(), "sleep", "60"])
    assert seen.returncode == -signal.SIGALRM
