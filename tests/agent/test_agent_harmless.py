"""The agent may lose its recording; the program must not notice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import UNDERFED, Run
from underfed.recording import records as r
from underfed.recording.read import read

pytestmark = pytest.mark.torch

LOOP = """
import os, sys, time
from torch import nn
net = nn.Linear(8, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def steps(n, pause=0.0):
    for i in range(n):
        opt.zero_grad(); net(torch.randn(4, 8)).sum().backward(); opt.step()
        time.sleep(pause)
"""


def test_a_program_that_closes_all_descriptors_and_reuses_them(run: Run, tmp_path: Path) -> None:
    seen = run(
        LOOP
        + """
steps(20, 0.05)
os.closerange(3, 256)
files = [open(f'{sys.argv[1]}/{i}', 'w+') for i in range(120)]
steps(20, 0.05)
print({f.read() for f in files})
""",
        str(tmp_path),
    )
    assert (seen.code, seen.out) == (0, "{''}\n"), seen.err
    assert all((tmp_path / str(i)).read_bytes() == b"" for i in range(120))


def test_the_folder_goes_away(run: Run) -> None:
    seen = run(
        LOOP
        + "import shutil\nsteps(20, 0.05)\nshutil.rmtree(os.environ['UNDERFED_AGENT'])\nsteps(20, 0.05)\nprint('ok')\n"
    )
    assert (seen.code, seen.out) == (0, "ok\n")
    assert "Traceback" not in seen.err


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_the_disk_is_full(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("this machine mounts nothing")
    try:
        script = tmp_path / "s.py"
        script.write_text("import torch\n" + LOOP + "steps(3000, 0.001)\nprint('ok')\n")
        done = subprocess.run(
            [*UNDERFED, "--out", str(small / "o"), "--", sys.executable, str(script)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
        assert done.stderr.count("recording stopped") == 1
        assert "Traceback" not in done.stderr
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)


@pytest.mark.parametrize("wait", [2.1, pytest.param(1.3, marks=pytest.mark.slow)])
def test_a_killed_run_reads_up_to_the_last_second(tmp_path: Path, wait: float) -> None:
    script = tmp_path / "s.py"
    script.write_text("import torch\n" + LOOP + "print('started', flush=True)\nsteps(100000, 0.002)\n")
    folder = tmp_path / "o"
    running = subprocess.Popen(
        [*UNDERFED, "--out", str(folder), "--", sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert running.stdout is not None and running.stdout.readline() == "started\n"
    begun = time.perf_counter_ns()
    time.sleep(wait)
    log = read(folder).processes[0]
    os.kill(log.process.pid, signal.SIGKILL)
    killed = time.perf_counter_ns()
    running.wait()
    rows = read(folder).processes[0].step_rows()
    assert rows and rows[-1][2] > begun
    assert killed - rows[-1][2] < 2.5e9, "half a second by design; a slow machine gets some room"


def test_no_thread_of_ours_at_a_fork_and_none_in_the_programs_lists(run: Run) -> None:
    seen = run(
        LOOP
        + """
import threading
steps(30, 0.02)
tasks = lambda: len(os.listdir('/proc/self/task'))
before = tasks()
counts = []
os.register_at_fork(after_in_parent=lambda: None, before=lambda: None)
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        os._exit(10 + tasks())
    counts.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) - 10)
    steps(5, 0.02)
print(counts, threading.active_count(), [t.name for t in threading.enumerate()], tasks() == before)
"""
    )
    assert seen.out == "[1, 1, 1, 1, 1] 1 ['MainThread'] True\n", seen.err


def test_nothing_secret_is_written(run: Run) -> None:
    seen = run(LOOP + "steps(40, 0.02)\n", "--token", "hunter2-argument", env={"MY_SECRET": "hunter2-environment"})
    written = b"".join(path.read_bytes() for path in seen.folder.iterdir())
    assert b"steps" in written
    assert b"hunter2" not in written


COMPILED = """
import warnings
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
def f(x):
    y = model(x).to(torch.float64).float()
    z = torch.empty_like(y)
    z.copy_(y)
    return z.cpu() * 2
def g(x):
    y = model(x).sum()
    if y.item() > 0:
        return y + 1
    return y.to('cpu') - 1
f, g = torch.compile(f, backend='eager'), torch.compile(g, backend='eager')
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter('always')
    print(f(torch.ones(2, 8)).sum().item(), g(torch.ones(2, 8)).item(), bool(torch.ones(1)), int(torch.ones(1)))
    x = torch.ones(4, 8, requires_grad=True)
    f(x).sum().backward()
print(x.grad.sum().item(), [str(w.message)[:80] for w in seen])
from torch._dynamo.utils import counters
print({k: dict(v) for k, v in counters.items() if k in ('stats', 'graph_break', 'frames')})
"""


def test_compiled_code_is_compiled_as_without_us(run: Run) -> None:
    """Also with the hooks that only CUDA builds get."""
    alone = run(COMPILED, bare=True, name="b")
    hooks = """
import sys
if '_underfed_agent' in sys.modules:
    from _underfed_agent import comms, tensors
    tensors.install(torch); comms.install(torch)
"""
    assert run(hooks + COMPILED).out == alone.out
    assert "unique_graphs" in alone.out


def test_a_profiler_of_ours_starts_and_stops_without_a_word_and_leaves_no_variable() -> None:
    body = """
import os
from torch.profiler import ProfilerActivity, profile
from underfed.observe.agent import window
ours = profile(activities=[ProfilerActivity.CPU])
window._start_quietly(ours)
print("KINETO_LOG_LEVEL" in os.environ)
ours.stop()
"""
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_settings_that_contradict_each_other_are_read_all_the_same(run: Run) -> None:
    """From torch 2.9 on asking for the precision is an error once it was set by an old name and by a new one."""
    seen = run(
        "torch.set_float32_matmul_precision('high')\ntorch.backends.cuda.matmul.allow_tf32 = False\n"
        + LOOP
        + "steps(150, 0.01)\n"
    )
    assert seen.code == 0, seen.err
    assert len(seen.main.step_rows()) >= 149
    assert not seen.main.of(r.Fault)
    assert seen.main.of(r.Facts)[-1].matmul_precision == "highest", "what cuBLAS is allowed is what counts"


def test_a_look_that_fails_costs_nothing_else(run: Run) -> None:
    seen = run(LOOP + "kept, torch.get_num_threads = torch.get_num_threads, None\nsteps(150, 0.01)\n")
    assert seen.code == 0, seen.err
    assert len(seen.main.step_rows()) >= 149
    assert [(fault.where, fault.error) for fault in seen.main.of(r.Fault)] == [("facts", "TypeError")]
    assert seen.main.of(r.Stacks)
