"""Runs to carry, small file systems to fill, and processes to kill."""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from underfed.cli import main

UNDERFED = [sys.executable, "-m", "underfed"]


def make_run(folder: Path, seed: int = 0, size: int = 100_000, when: float = 1_700_000_000.0) -> Path:
    """A finished run with five files, all of one time."""
    random_bytes = random.Random(seed)
    (folder / "protocol").mkdir(parents=True, exist_ok=True)
    (folder / "best.pth").write_bytes(random_bytes.randbytes(size))
    (folder / "best_metrics.json").write_text(f'{{"seed": {seed}}}')
    (folder / "protocol" / "split.yaml").write_text(f"seed: {seed}\n")
    (folder / "train.log").write_text(f"epoch {seed}\n" * 20)
    (folder / "last.pth").write_bytes(random_bytes.randbytes(1000))
    age(folder, when)
    return folder


def age(folder: Path, when: float) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (when, when))


def underfed(
    *words: object, env: dict[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*UNDERFED, *map(str, words)],
        capture_output=True,
        check=False,
        text=True,
        errors="surrogateescape",
        env={**os.environ, **(env or {})},
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def tree(folder: Path, skip: tuple[str, ...] = ()) -> dict[str, tuple[str, str]]:
    """Every path below a folder with its kind and SHA-256 (or link target)."""
    found = {}
    base = os.fsencode(folder)
    for at, folders, files in os.walk(base):
        for name in folders + files:
            path = os.path.join(at, name)
            relative = os.fsdecode(os.path.relpath(path, base))
            if any(part in skip for part in relative.split("/")):
                continue
            if os.path.islink(path):
                found[relative] = ("link", os.fsdecode(os.readlink(path)))
            elif os.path.isdir(path):
                found[relative] = ("folder", "")
            else:
                found[relative] = ("file", hash_of(path))
    return found


def hash_of(path: bytes | str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_of(folder: Path, skip: tuple[str, ...] = ()) -> dict[str, str]:
    return {path: digest for path, (kind, digest) in tree(folder, skip).items() if kind == "file"}


# Children are forked from a server without threads: a process that has hashed in several threads
# cannot be forked (the child would wait for threads that it does not have).
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["underfed.cli.collect", "underfed.cli.pull"])


def run_quietly(words: list[str], env: dict[str, str]) -> None:
    code = 99
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(quiet, fd)
        os.environ.update(env)
        code = main(words)
    finally:
        os._exit(code)


def in_child(words: list[str], env: dict[str, str] | None = None) -> ForkServerProcess:
    """Run a command line of underfed in a forked child (no start-up time)."""
    child = SERVER.Process(target=run_quietly, args=(words, env or {}))
    child.start()
    return child


def kill_after(child: ForkServerProcess, seconds: float) -> int | None:
    """Kill a child after a while; None if it was killed, else the exit code it ended with before."""
    child.join(seconds)
    if child.exitcode is None:
        child.kill()
    code = wait_for(child)
    return None if code == -signal.SIGKILL else code


def wait_for(child: ForkServerProcess) -> int:
    child.join()
    assert child.exitcode is not None
    return child.exitcode


@contextlib.contextmanager
def mounted(where: Path, *options: str, kind: str = "tmpfs"):
    """A tmpfs with limits, or skip where mounting is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    where.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", kind, "-o", ",".join(options) or "rw", kind, str(where)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a {kind}: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


@contextlib.contextmanager
def image_mounted(where: Path, image: Path, megabytes: int, make: list[str], *options: str):
    """A file system in a file, mounted by a loop device, or skip."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    if not shutil.which(make[0], path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
        pytest.skip(f"{make[0]} is not installed")
    where.mkdir(parents=True, exist_ok=True)
    with open(image, "wb") as file:
        file.truncate(megabytes << 20)
    env = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    subprocess.run([*make, str(image)], check=True, capture_output=True, env=env)
    words = ["mount", "-o", ",".join(("loop", *options)), str(image), str(where)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount an image: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


QUOTA_BYTES = 2 << 20


@contextlib.contextmanager
def with_quota(where: Path, image: Path):
    """A btrfs of 128 MB whose quota leaves 2 MB, or skip.

    Its quota groups need neither the kernel's quota formats nor another user: superusers are held to them as well.
    """
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    with lzma.open(Path(__file__).parent / "quota.btrfs.xz") as packed, open(image, "wb") as file:
        while block := packed.read(1 << 20):
            if block.count(0) == len(block):
                file.seek(len(block), os.SEEK_CUR)
            else:
                file.write(block)
        file.truncate()
    where.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", "-o", "loop", image, where], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a btrfs: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)
