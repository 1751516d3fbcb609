"""`watch()` sees the loop, changes nothing of it, and leaves nothing behind."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from library_help import Loop, changed, touched

import underfed
from underfed.errors import UsageError
from underfed.library.watching import going
from underfed.observe.agent.core import S
from underfed.recording import records as r

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="underfed watches on Linux only")]


def run(source: str, folder: Path, *, under: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(source)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    words = [*(under or []), sys.executable, str(script)]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def steps_of(recording: underfed.Recording) -> list[list[int]]:
    """Rows that the optimizer has closed: a batch taken before the first step of it closes one of its own."""
    (log,) = (log for log in recording.processes if log.step_rows())
    return [row for row in log.step_rows() if row[1] == r.BY_OPTIMIZER]


def test_a_starved_loop_is_called_data_bound_at_its_line() -> None:
    loop = Loop(60)
    with underfed.watch() as w:
        loop.train()
    found = w.diagnosis
    assert found.verdict.bound == "data"
    assert "library_help.py:" in str(found)
    assert found.subject.steps is not None
    assert 40 <= found.subject.steps + (found.subject.warmup_steps or 0) <= 60
    assert found is w.diagnosis


def test_each_step_adds_up_and_none_is_missing() -> None:
    loop = Loop(40, wait_s=0)
    with underfed.watch() as w:
        loop.train()
    (log,) = w.recording.processes
    rows = log.step_rows()
    assert len(steps_of(w.recording)) == 40
    assert log.ended
    for row in rows:
        assert sum(row[5 : 5 + len(r.STEP_REGIONS)]) == row[3]


def test_everything_in_torch_is_the_same_object_again() -> None:
    before = touched()
    loop = Loop(8)
    for _ in range(2):
        with underfed.watch():
            during = changed(before)
            loop.train()
        assert changed(before) == []
    for name in (
        "_BaseDataLoaderIter.__next__",
        "DataLoader.__iter__",
        "torch.autograd.backward",
        "_MapDatasetFetcher.fetch",
    ):
        assert name in during
    assert len([name for name in during if name.startswith("hook.")]) == 2
    assert len([name for name in during if name.startswith("gc.")]) == 1


def test_what_somebody_else_put_on_top_stays_and_works() -> None:
    original = torch.autograd.backward
    calls = []

    def mine(*args: object, **kwargs: object) -> object:
        calls.append(1)
        return ours(*args, **kwargs)

    try:
        with underfed.watch():
            ours = torch.autograd.backward
            torch.autograd.backward = mine
        Loop(3, wait_s=0).train()
        assert torch.autograd.backward is mine
        assert len(calls) == 3
    finally:
        torch.autograd.backward = original


def test_losses_and_weights_are_equal_to_the_bit() -> None:
    plain = Loop(30, wait_s=0)
    plain.train()
    state = torch.get_rng_state()
    watched = Loop(30, wait_s=0)
    with underfed.watch():
        watched.train()
    assert [loss.hex() for loss in plain.losses] == [loss.hex() for loss in watched.losses]
    assert all(torch.equal(a, b) for a, b in zip(plain.model.parameters(), watched.model.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())


def test_an_exception_passes_through_and_is_recorded(tmp_path: Path) -> None:
    before = touched()
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as seen, underfed.watch(out=tmp_path / "o") as w:
        Loop(5, wait_s=0).train()
        raise error
    assert seen.value is error
    assert changed(before) == []
    assert '"code": 1' in (tmp_path / "o/end.json").read_text()
    assert len(w.recording.processes) == 1


def test_a_second_watch_says_where_the_first_is() -> None:
    with underfed.watch() as w:
        with pytest.raises(UsageError, match=r"going already .*test_watch\.py:\d+"):
            underfed.watch().start()
        Loop(5, wait_s=0).train()
    assert w.diagnosis.subject.steps is not None
    with pytest.raises(UsageError, match="used already"):
        w.start()
    with underfed.watch():  # the refused one has left nothing behind
        pass


def test_wrong_arguments_are_told_before_the_training(tmp_path: Path) -> None:
    for wrong in ({"window": 0}, {"window": "10"}, {"steps": -1}, {"steps": True}):
        with pytest.raises(UsageError, match=r"watch: (window|steps)="):
            underfed.watch(**wrong)
    (tmp_path / "x").write_text("")
    for place in (tmp_path, tmp_path / "x"):
        with pytest.raises(UsageError, match="out="):
            underfed.watch(out=place).start()
    with underfed.watch():
        pass
    fresh = underfed.watch()
    with pytest.raises(UsageError, match="not begun"):
        _ = fresh.diagnosis


def test_a_place_that_cannot_be_written_lets_the_training_run(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(5, wait_s=0)
    monkeypatch.setattr("tempfile.tempdir", "/proc/no/such/place")
    with pytest.warns(RuntimeWarning, match="nothing is watched"), underfed.watch() as w:
        loop.train()
    assert len(loop.losses) == 5
    assert w.diagnosis.verdict.bound == "unknown"
    assert "Nothing was watched" in w.diagnosis.verdict.text
    with pytest.raises(UsageError, match="nothing was recorded"):
        _ = w.recording


def test_a_peek_while_it_goes_costs_no_step() -> None:
    loop = Loop(200, wait_s=0)
    peeks = []
    with underfed.watch() as w:
        for number, batch in enumerate(loop.loader):
            loop.optimizer.zero_grad()
            loop.model(batch).square().mean().backward()
            loop.optimizer.step()
            if number in {60, 120}:
                peeks.append(w.diagnosis)
    seen = [(one.subject.steps or 0) + (one.subject.warmup_steps or 0) for one in peeks]
    assert seen == [61, 121]
    assert len(steps_of(w.recording)) == 200


def test_a_loop_on_another_thread_is_watched() -> None:
    loop = Loop(20, wait_s=0)
    with underfed.watch() as w:
        thread = threading.Thread(target=loop.train)
        thread.start()
        thread.join()
    assert len(steps_of(w.recording)) == 19  # the first one makes known on which thread the loop is


def test_no_thread_and_no_descriptor_is_left() -> None:
    def state() -> tuple[int, int]:
        return len(list(Path("/proc/self/task").iterdir())), len(list(Path("/proc/self/fd").iterdir()))

    with underfed.watch() as w:  # what is loaded once stays
        Loop(5).train()
    before = state()
    for _ in range(3):
        with underfed.watch():
            Loop(5).train()
    for _ in range(500):  # a thread that has ended is still listed for a moment
        if state()[0] <= before[0]:
            break
        time.sleep(0.01)
    assert state()[0] <= before[0]
    assert state()[1] == before[1]
    assert w.folder is not None


def test_the_temporary_folder_goes_with_the_watch_and_out_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with underfed.watch() as w:
        Loop(5, wait_s=0).train()
    folder = w.folder
    assert folder is not None
    recording = w.recording
    assert folder.stat().st_mode & 0o077 == 0
    del w
    assert folder.is_dir()  # the recording still needs it
    del recording
    assert not folder.exists()
    with underfed.watch(out=tmp_path / "kept") as w:
        Loop(30, wait_s=0).train()
    del w
    monkeypatch.setenv("HOME", str(tmp_path))
    assert underfed.watch(out="~/new").start().stop() is None
    assert underfed.open("~/new").folder == tmp_path / "new"
    assert underfed.diagnose(tmp_path / "kept").subject.steps
    assert underfed.open(tmp_path / "kept").processes
    assert underfed.read(tmp_path / "kept").subject.kind == "run"


def test_workers_that_live_on_write_no_more(tmp_path: Path) -> None:
    loop = Loop(12, workers=2, persistent_workers=True, multiprocessing_context="fork")
    with underfed.watch(out=tmp_path / "o") as w:
        loop.train()
    assert len(w.recording.workers) == 2
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "o").iterdir()}
    loop.train()
    assert {path.name: path.stat().st_size for path in (tmp_path / "o").iterdir()} == sizes
    assert sum(len(line.rows) for log in w.recording.workers for line in log.of(r.Fetches)) == 12


def test_a_fork_that_leaves_the_block_takes_nothing_away() -> None:
    with underfed.watch() as w:
        loop = Loop(10, wait_s=0)
        loop.train()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of torch itself
            child = os.fork()
        if child == 0:
            try:
                seen = going()  # the parent's watch is none of this process
                w.stop()
                good = seen is None and w.diagnosis.verdict.bound == "unknown" and not S.on
                os._exit(0 if good else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        loop.train()
    assert len(steps_of(w.recording)) == 20


def test_under_run_there_is_one_agent_and_one_recording(tmp_path: Path) -> None:
    source = """
import sys, torch, underfed
from library_help import Loop
with underfed.watch() as w:
    loop = Loop(60)
    loop.train()
assert "underfed.observe.agent" not in sys.modules
print(w.folder)
print(w.diagnosis.verdict.bound)
loop.train()
"""
    under = [sys.executable, "-m", "underfed", "run", "--out", str(tmp_path / "o"), "--"]
    done = run(source, tmp_path, under=under)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(tmp_path / "o"), "data"]
    assert len(steps_of(underfed.open(tmp_path / "o"))) == 120


def test_it_ends_with_a_program_that_exits_inside(tmp_path: Path) -> None:
    source = """
import sys, underfed
from library_help import Loop
w = underfed.watch().start()
Loop(10, wait_s=0).train()
print(w.folder)
sys.exit(7)
"""
    done = run(source, tmp_path)
    assert (done.returncode, done.stderr) == (7, "")
    assert not Path(done.stdout.strip()).exists()


def test_importing_it_loads_nothing(tmp_path: Path) -> None:
    source = "import sys; before = set(sys.modules); import underfed; print(sorted(set(sys.modules) - before))"
    assert run(source, tmp_path).stdout.strip() == "['underfed']"
    missing = run("import underfed; underfed.nothing", tmp_path)
    assert "has no attribute 'nothing'" in missing.stderr


def test_every_name_of_the_package_can_be_had() -> None:
    for name in underfed._NAMES:
        assert getattr(underfed, name) is not None
        assert name in dir(underfed)
    importlib.import_module("underfed.diagnose.run")  # the package of that name must not hide the function
    assert callable(underfed.diagnose)
    with pytest.raises(UsageError, match="not a recording"):
        underfed.diagnose("/proc/nowhere")
