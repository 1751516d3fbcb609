"""What the three scripts do by hand, beside them: the same where they are right, and where each falls short."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from carry_help import age, make_run, mounted, underfed
from sshd_help import Box, free_port

SCRIPTS = Path(__file__).parents[3] / "shared" / "requirements"
pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="the scripts of ../shared/requirements are not here")


def script(*words: object, **env: object) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **{name: str(value) for name, value in env.items()}}
    return subprocess.run([*map(str, words)], env=variables, capture_output=True, text=True, check=False)


class Sweep:
    """One data disk, and a durable folder for each of the two."""

    def __init__(self, folder: Path) -> None:
        self.data, self.theirs, self.ours = folder / "data", folder / "theirs", folder / "ours"
        self.runs = self.data / "checkpoints"
        (self.data / "runs/logs").mkdir(parents=True)
        self.runs.mkdir()
        self.theirs.mkdir()

    def by_script(self) -> subprocess.CompletedProcess[str]:
        return script("bash", SCRIPTS / "aggregate_to_fs.sh", DATA_DIR=self.data, DURABLE_DIR=self.theirs)

    def by_us(self, *words: object) -> subprocess.CompletedProcess[str]:
        return underfed("collect", self.runs, self.ours, *words)

    @property
    def kept(self) -> tuple[Path, Path]:
        return self.theirs / "final_ckpts", self.ours


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def test_finished_runs_are_kept_and_unfinished_ones_named(sweep: Sweep) -> None:
    make_run(sweep.runs / "done")
    make_run(sweep.runs / "early")
    (sweep.runs / "early/best_metrics.json").unlink()
    theirs, ours = sweep.by_script(), sweep.by_us()
    assert theirs.returncode == ours.returncode == 0
    for out in (theirs.stdout, ours.stdout):
        assert "best_metrics.json" in next(line for line in out.splitlines() if "early" in line)
    for kept in sweep.kept:
        assert not (kept / "early").exists()
        for name in ("best.pth", "best_metrics.json", "protocol/split.yaml"):
            assert (kept / "done" / name).read_bytes() == (sweep.runs / "done" / name).read_bytes()


def test_a_retried_run_overwrites_and_a_rerun_changes_nothing(sweep: Sweep) -> None:
    make_run(sweep.runs / "a", seed=1)
    sweep.by_script(), sweep.by_us()
    make_run(sweep.runs / "a", seed=2, when=1_700_100_000)
    for _ in range(2):
        assert sweep.by_script().returncode == sweep.by_us().returncode == 0
        for kept in sweep.kept:
            assert (kept / "a/best.pth").read_bytes() == (sweep.runs / "a/best.pth").read_bytes()


def test_an_older_result_never_overwrites_where_the_script_lets_it(sweep: Sweep) -> None:
    newer = make_run(sweep.runs / "a", seed=2, when=1_700_100_000)
    weights = (newer / "best.pth").read_bytes()
    sweep.by_script(), sweep.by_us()
    make_run(sweep.runs / "a", seed=1, when=1_700_000_000)
    assert sweep.by_script().returncode == 0
    assert (sweep.kept[0] / "a/best.pth").read_bytes() != weights
    sweep.by_us()
    assert (sweep.kept[1] / "a/best.pth").read_bytes() == weights


def test_presence_is_not_content_when_the_disk_is_full(sweep: Sweep, tmp_path: Path) -> None:
    """The checkpoint lands, its metrics do not: the script says OK."""
    make_run(sweep.runs / "a", size=900_000)
    (sweep.runs / "a/best_metrics.json").write_bytes(b" " * 400_000 + b"{}")
    age(sweep.runs / "a", 1_700_000_000)
    with mounted(tmp_path / "small", "size=1m") as small:
        theirs = script("bash", SCRIPTS / "aggregate_to_fs.sh", DATA_DIR=sweep.data, DURABLE_DIR=small)
        assert theirs.returncode == 0 and "OK a" in theirs.stdout
        landed = small / "final_ckpts/a/best_metrics.json"
        assert not landed.exists() or landed.stat().st_size < 400_000
        shutil.rmtree(small / "final_ckpts")
        ours = underfed("collect", sweep.runs, small)
        assert ours.returncode == 2 and "are needed" in ours.stderr and "verified" not in ours.stdout


def test_a_run_that_is_not_there_is_missed_by_the_script(sweep: Sweep, tmp_path: Path) -> None:
    make_run(sweep.runs / "a")
    (tmp_path / "roster").write_text("a\nb\n")
    assert sweep.by_script().returncode == 0
    ours = sweep.by_us("--expect", tmp_path / "roster")
    assert ours.returncode == 1 and "MISSING   b" in ours.stdout


@pytest.fixture
def box(tmp_path: Path):
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed")
    made = Box(tmp_path / "box").start()
    yield made
    made.close()


def download(box: Box, far: Path, dst: Path, enough: int) -> subprocess.CompletedProcess[str]:
    return script(
        "bash",
        SCRIPTS / "download_loop.sh",
        LOCAL_TARGET=dst,
        REMOTE_ALIAS="box",
        REMOTE_PATH=far,
        MIN_DIR_SIZE_BYTES=enough,
        **box.env,
    )


def test_a_size_hides_a_truncated_and_an_altered_file(box: Box, tmp_path: Path) -> None:
    """Both are above the size that "looks complete", so the script skips them for good."""
    far = tmp_path / "far"
    for name in ("cut", "flipped", "fine"):
        make_run(far / name, size=200_000)
    for dst in ("theirs", "ours"):
        shutil.copytree(far, tmp_path / dst)
        with open(tmp_path / dst / "cut/best.pth", "r+b") as file:
            file.truncate(150_000)
        with open(tmp_path / dst / "flipped/best.pth", "r+b") as file:
            file.write(b"\0\0\0\0")
    theirs = download(box, far, tmp_path / "theirs", 100_000)
    assert theirs.returncode == 0 and theirs.stdout.count("SKIP") == 4
    ours = underfed("pull", f"box:{far}", tmp_path / "ours", env=box.env)
    assert ours.returncode == 0, ours.stdout + ours.stderr
    for name in ("cut", "flipped", "fine"):
        truth = (far / name / "best.pth").read_bytes()
        assert ((tmp_path / "theirs" / name / "best.pth").read_bytes() == truth) is (name == "fine")
        assert (tmp_path / "ours" / name / "best.pth").read_bytes() == truth


def test_no_answer_is_never_an_empty_download(box: Box, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    assert "empty" in download(box, tmp_path / "far", tmp_path / "t", 1).stdout
    ours = underfed("pull", f"box:{tmp_path}/far", tmp_path / "o", env=box.env)
    assert ours.returncode == 0 and "empty" in ours.stdout and "safe to release: no" in ours.stdout
    assert download(box, tmp_path / "nowhere", tmp_path / "t", 1).returncode == 1
    assert underfed("pull", f"box:{tmp_path}/nowhere", tmp_path / "o", env=box.env).returncode == 2
    box.configure(free_port())
    assert download(box, tmp_path / "far", tmp_path / "t", 1).returncode == 1
    assert underfed("pull", f"box:{tmp_path}/far", tmp_path / "o", env=box.env).returncode == 2


def stamps(folder: Path, today: str) -> tuple[int, int]:
    """Exit codes of the script and of `stale`."""
    theirs = script(sys.executable, SCRIPTS / "check_staleness.py", "--root", folder, "--today", today)
    return theirs.returncode, underfed("stale", folder, "--today", today).returncode


def test_old_stamps_fresh_stamps_and_none(tmp_path: Path) -> None:
    (tmp_path / "facts.md").write_text("The clock stops at release (verified 2026-01).\n")
    assert stamps(tmp_path, "2026-07") == (0, 0)
    assert stamps(tmp_path, "2026-08") == (1, 1)
    (tmp_path / "facts.md").write_text("The clock stops at release.\n")
    assert stamps(tmp_path, "2026-07") == (1, 1)


def test_another_date_on_the_line_is_not_the_stamp(tmp_path: Path) -> None:
    (tmp_path / "facts.md").write_text("Open since 2020-03, verified 2026-01.\n")
    assert stamps(tmp_path, "2026-02") == (1, 0)


def test_a_date_that_lies_ahead_and_facts_outside_markdown(tmp_path: Path) -> None:
    (tmp_path / "facts.md").write_text("Open (verified 2027-01).\n")
    assert stamps(tmp_path, "2026-02") == (0, 1)
    (tmp_path / "facts.md").write_text("Open (verified 2026-01).\n")
    (tmp_path / "prices.yaml").write_text("h200: 3.5  # verified 2024-01\n")
    assert stamps(tmp_path, "2026-02") == (0, 1)
