"""`collect` against cp and b3sum, `pull` against rsync: `python bench/carry/run.py [--folder DIR] [--pairs 3]`.

Runs are made below the folder (so its disk is what is measured), and carried by each in turns, forwards and backwards.
`collect` is held against `cp -r` and b3sum of source and copy, one after another, with a `sync` of the copy between
them (what a careful person does by hand) and without one (nothing need be on the disk then). `pull` is held against
`rsync -a` (nothing verified) over an sshd on the loopback that the bench starts itself (the tests' one, so it needs
openssh-server). Two shapes: few large files, and 10,000 files of 1 kB. underfed's bytecode is compiled before, as pip
does when it installs it.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "carry"))
from sshd_help import Box

UNDERFED = [sys.executable, "-m", "underfed"]


def large(folder: Path, total: int) -> int:
    """Make four runs of two files; returns the bytes."""
    block = os.urandom(8 << 20)
    for run in range(4):
        (folder / f"run{run}").mkdir(parents=True)
        for name in ("best.pth", "last.pth"):
            with (folder / f"run{run}" / name).open("wb") as file:
                for number in range(max(1, total // 8 // len(block))):
                    file.write(number.to_bytes(8, "little") + block[8:])
        (folder / f"run{run}" / "best_metrics.json").write_text("{}")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def small(folder: Path, count: int) -> int:
    """Make ten runs of small files; returns the bytes."""
    for run in range(10):
        (folder / f"run{run}").mkdir(parents=True)
        (folder / f"run{run}" / "best_metrics.json").write_text("{}")
        for number in range(count // 10):
            (folder / f"run{run}" / f"{number}.npy").write_bytes(os.urandom(1000))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def run(words: list[str], env: dict[str, str] | None = None) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **(env or {})})


def by_hand(src: Path, dst: Path, *, sync: bool) -> None:
    """Copy, sync, and hash both sides."""
    run(["cp", "-r", str(src), str(dst)])
    if sync:
        run(["sync", "-f", str(dst)])
    for side in (src, dst):
        run(["sh", "-c", 'cd "$1" && find . -type f -print0 | xargs -0 b3sum', "sh", str(side)])


def by_collect(src: Path, dst: Path) -> None:
    run([*UNDERFED, "collect", str(src), str(dst), "--all"])


def turns(folder: Path, count: int, arms: list[Callable[[Path], None]]) -> list[list[float]]:
    """Seconds of all arms, in turns; each into a new folder, with the disk's writes settled before.

    What holds many files is removed at the end only: ext4 is slow to make files where many were removed a moment ago.
    """
    seconds: list[list[float]] = [[] for _ in arms]
    for number in range(count):
        order = range(len(arms))
        for arm in order if number % 2 == 0 else reversed(order):
            dst = folder / f"dst-{number}-{arm}"
            run(["sync", "-f", str(folder)])
            began = time.perf_counter()
            arms[arm](dst)
            seconds[arm].append(time.perf_counter() - began)
            if sum(1 for _ in dst.rglob("*")) < 1000:
                shutil.rmtree(dst)
    for left in folder.glob("dst-*"):
        shutil.rmtree(left)
    return seconds


def row(name: str, size: int, theirs: list[float], ours: list[float]) -> str:
    ratios = sorted(a / b for a, b in zip(theirs, ours, strict=True))
    spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return (
        f"| {name} | {size / 1e6:.0f} MB | {statistics.median(theirs):.2f} | {statistics.median(ours):.2f} | {spread} |"
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    words.add_argument("--pairs", type=int, default=5)
    words.add_argument("--megabytes", type=int, default=1000)
    words.add_argument("--files", type=int, default=10_000)
    words.add_argument("--only", nargs="*", choices=("collect", "pull", "small", "large"), default=[])
    options = words.parse_args()
    for tool in ("b3sum", "rsync"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is not installed")
    print(f"{datetime.date.today()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the start")
    print(
        "| what | size | by hand or rsync (s) | underfed (s) | speed, ratio of pairs (range) |\n|---|---|---|---|---|"
    )
    only = set(options.only)
    both = not {"collect", "pull"} & only
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
        box = Box(folder / "box").start()
        try:
            small(folder / "first", 100)  # which compiles what is used
            by_collect(folder / "first", folder / "first-collected")
            run([*UNDERFED, "pull", f"box:{folder}/first", str(folder / "first-pulled")], box.env)
            shapes = (
                (f"{options.files} files of 1 kB", small, options.files),
                ("8 files", large, options.megabytes << 20),
            )
            for shape, make, amount in shapes:
                if {"small", "large"} & only and make.__name__ not in only:
                    continue
                src = folder / "src"
                size = make(src, amount)
                far = f"box:{src}"
                if both or "collect" in only:
                    synced, plain, ours = turns(
                        folder,
                        options.pairs,
                        [
                            lambda dst, s=src: by_hand(s, dst, sync=True),
                            lambda dst, s=src: by_hand(s, dst, sync=False),
                            lambda dst, s=src: by_collect(s, dst),
                        ],
                    )
                    print(row(f"collect, {shape}, by hand with sync", size, synced, ours))
                    print(row(f"collect, {shape}, by hand without", size, plain, ours), flush=True)
                if both or "pull" in only:
                    theirs, ours = turns(
                        folder,
                        options.pairs,
                        [
                            lambda dst, f=far: run(["rsync", "-a", f"{f}/", str(dst)], box.env),
                            lambda dst, f=far: run([*UNDERFED, "pull", f, str(dst)], box.env),
                        ],
                    )
                    print(row(f"pull, {shape}", size, theirs, ours), flush=True)
                shutil.rmtree(src)
        finally:
            box.close()


if __name__ == "__main__":
    main()
