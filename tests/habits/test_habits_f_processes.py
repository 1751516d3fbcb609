"""Processes: habits 45 to 52."""

from __future__ import annotations

import os
import signal

import pytest
from habits_harness import LOOP, PATIENCE_S, PY, environment, process_state, wait_for

LOADER = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.full((4,), float(index))

def work(method, workers, epochs, persistent):
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Data(), batch_size=2, num_workers=workers, multiprocessing_context=method if workers else None,
                        persistent_workers=persistent and workers > 0)
    for epoch in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
    print(method, workers, epochs, 'done')

if __name__ == '__main__':
    work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == 'kept')
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("method", "workers", "epochs", "kept"),
    [
        ("fork", 0, 40, "new"),
        pytest.param("fork", 1, 20, "new", marks=pytest.mark.slow),
        ("fork", 2, 20, "kept"),
        pytest.param("forkserver", 2, 2, "new", marks=pytest.mark.slow),
        pytest.param("spawn", 1, 1, "new", marks=pytest.mark.slow),
        *(
            pytest.param(method, workers, epochs, kept, marks=pytest.mark.slow)
            for method, epochs, kept in [("fork", 200, "new"), ("spawn", 99, "kept"), ("forkserver", 9, "new")]
            for workers in (1, 8)
        ),
    ],
)
def test_habit_45_loader_workers_are_seen_and_nothing_locks_up(room, method, workers, epochs, kept):
    from underfed.recording.read import read
    from underfed.recording.records import Fetches

    seen = room.under([PY, room.script(LOADER), method, str(workers), str(epochs), kept])
    assert (seen.returncode, seen.stdout.decode()) == (0, f"{method} {workers} {epochs} done\n")
    recording = read(seen.recording)
    trainer, *others = sorted((len(log.step_rows()) for log in recording.processes), reverse=True)
    assert trainer >= 4 * epochs - 1
    assert not any(others)
    logs = [log for log in recording.processes + recording.workers if not log.step_rows()]
    assert {fetch.worker for log in logs for fetch in log.of(Fetches)} == set(range(workers))
    assert sum(log.damaged for log in recording.processes + recording.workers) == 0


@pytest.mark.torch
@pytest.mark.parametrize("force", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_habit_46_set_start_method_still_works(room, force):
    script = room.script(
        "import multiprocessing, torch, torch.multiprocessing as mp\n"
        "print(mp.get_start_method(allow_none=True))\n"
        f"mp.set_start_method('spawn', force={force})\n"
        "print(mp.get_start_method(), multiprocessing.get_start_method())\n"
        "try:\n    mp.set_start_method('fork')\nexcept RuntimeError as error:\n    print(error)\n"
    )
    room.both([PY, script])


@pytest.mark.torch
@pytest.mark.parametrize(
    "end", ["os.kill(os.getpid(), 9)", "time.sleep(60)", pytest.param("os._exit(0)", marks=pytest.mark.slow)]
)
def test_habit_47_what_a_worker_saw_is_there_however_it_ends(room, end):
    """Two seconds of items, then os._exit, SIGKILL, or terminate() from outside."""
    from underfed.recording.read import read

    script = room.script(
        "import os, sys, time, torch\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Data(Dataset):\n    def __len__(self):\n        return 1000\n"
        "    def __getitem__(self, i):\n        time.sleep(0.02)\n"
        f"        if i == 100:\n            {end}\n        return i\n"
        "pids, got = [], 0\n"
        "try:\n    it = iter(DataLoader(Data(), num_workers=1, timeout=3))\n    pids.append(it._workers[0])\n"
        "    for _ in it:\n        got += 1\nexcept RuntimeError:\n    pids[0].terminate()\n    print('worker gone')\n"
    )
    seen = room.under([PY, script])
    assert (seen.returncode, seen.stdout) == (0, b"worker gone\n")
    (worker,) = read(seen.recording).workers
    assert worker.lines
    assert not worker.ended
    assert worker.damaged == 0


def test_habit_48_children_that_outlive_the_command_are_left_alone(room):
    seen = room.under(["sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!; exit 3"])
    assert seen.returncode == 3
    child = int(seen.stdout)
    assert process_state(child) == "S"
    os.kill(child, signal.SIGKILL)


def test_habit_49_a_pipe_held_by_such_a_child_does_not_hold_us(room):
    process = room.start([*room.prefix(), "sh", "-c", "sleep 60 & echo $!; exit 3"])
    child = int(process.stdout.readline())
    assert process.wait(timeout=PATIENCE_S) == 3
    assert process_state(child) == "S"
    os.kill(child, signal.SIGKILL)
    process.stdout.close()
    process.stderr.close()


def test_habit_48_a_daemon_that_left_the_session(room):
    script = room.script(
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork():\n        os._exit(0)\n"
        "    os.close(0); os.close(1); os.close(2)\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(60)\n"
        "    os._exit(0)\nos.wait()\nwhile not os.path.exists('pid'):\n    time.sleep(0.01)\nraise SystemExit(2)\n"
    )
    assert room.under([PY, script]).returncode == 2
    daemon = int(wait_for((room.folder / "pid").read_text))
    assert process_state(daemon) == "S"
    os.kill(daemon, signal.SIGKILL)


def test_habit_50_children_that_are_not_python(room):
    script = room.script(
        "import subprocess as s\nprint(s.check_output('echo a | cat; ls / | wc -l; true', shell=True))\n"
    )
    room.both([PY, script])


RANKS = """
import os, sys, time, torch, torch.distributed as dist
rank, attempt = int(os.environ['RANK']), int(os.environ.get('TORCHELASTIC_RESTART_COUNT', 0))
fails = attempt < int(sys.argv[1])
model = torch.nn.Linear(4, 4)
if not fails:  # no collectives in an attempt that dies: gloo's own ending then decides the status, with or without us
    dist.init_process_group('gloo')
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
if fails:
    time.sleep(1)
    os._exit(13) if rank == 1 else time.sleep(60)
dist.barrier()
time.sleep(1)
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("failures", "restarts", "code"),
    [
        (1, 1, 0),
        pytest.param(0, 0, 0, marks=pytest.mark.slow),
        pytest.param(9, 0, 1, marks=pytest.mark.slow),
    ],
)
def test_habit_51_ranks_and_restarts_of_torchrun(room, failures, restarts, code):
    from underfed.recording.read import read

    launch = [PY, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}"]
    env = environment(OMP_NUM_THREADS="1", TORCHELASTIC_LOG_LEVEL="ERROR")
    seen = room.under([*launch, room.script(RANKS), str(failures)], env=env)
    assert seen.returncode == code
    ranks = [log.process.rank for log in read(seen.recording).processes if log.process.rank is not None]
    assert sorted(ranks) == sorted([0, 1] * (1 + min(failures, restarts)))


@pytest.mark.torch
def test_habit_51_accelerate_launch(room):
    pytest.importorskip("accelerate")
    from underfed.recording.read import read

    script = room.script(LOOP + "raise SystemExit(0)\n")
    seen = room.under(
        [PY, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1", script]
    )
    assert seen.returncode == 0
    assert any(log.step_rows() for log in read(seen.recording).processes)


def test_habit_52_three_deep_and_three_hundred_short_processes(planted):
    """One folder, no file from processes without torch, and the command's own time."""
    planted.noting_agent()
    script = planted.script(
        "import os, subprocess, sys\n"
        "if len(sys.argv) == 1:\n"
        "    for _ in range(270):\n        os.fork() or os._exit(0)\n    [os.wait() for _ in range(270)]\n"
        "    children = [subprocess.Popen([sys.executable, '-c', 'pass'], env=os.environ.copy()) for _ in range(30)]\n"
        "    print({c.wait() for c in children})\n"
        "    sys.exit(subprocess.call([sys.executable, sys.argv[0], '2']))\n"
        "if sys.argv[1] != '0':\n    again = f'{sys.executable} {sys.argv[0]} {int(sys.argv[1]) - 1}'\n"
        "    sys.exit(subprocess.call(['sh', '-c', again]))\n"
        "import torch\nsys.exit(11)\n"
    )
    _, under = planted.both([PY, script], env=environment(PYTHONPATH=planted.library))
    assert under.returncode == 11
    assert len(list(under.recording.glob("p*.jsonl"))) == 1
    assert len(list(under.recording.iterdir())) < 10


def test_habit_52_forked_children_that_import_torch_later(planted):
    planted.noting_agent()
    script = planted.script("import os\nfor _ in range(20):\n    if os.fork() == 0:\n"
        "        import torch\n        os._exit(0)\n"
                            "print([os.wait()[1] for _ in range(20)])\n")  # fmt: skip
    _, under = planted.both([PY, script], env=environment(PYTHONPATH=planted.library))
    assert len(list(under.recording.glob("p*.jsonl"))) == 20
