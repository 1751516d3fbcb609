"""collect into object stores, on fsspec's own memory and local file systems."""

from __future__ import annotations

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest
from carry_help import UNDERFED, files_of, make_run, underfed

fsspec = pytest.importorskip("fsspec")
from underfed.carry.collect import Options, collect
from underfed.carry.remote_store import remote_store
from underfed.carry.take import Choice

MANIFEST = "underfed-manifest.jsonl"


@pytest.fixture
def src(tmp_path: Path) -> Path:
    return make_run(tmp_path / "src" / "group" / "a").parent.parent


@pytest.fixture
def bucket():
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield memory
    memory.store.clear()


def sweep(src: Path, **options):
    return collect(
        src, remote_store("memory://bucket/results"), Options(choice=Choice(everything=True), **options), lambda _: None
    )


def test_objects_are_read_back_and_a_rerun_sends_nothing(src: Path, bucket) -> None:
    first = sweep(src)
    assert first.exit_code == 0 and first.runs[0].copied_files == 5
    stored = {k.removeprefix("/bucket/results/"): bytes(bucket.cat_file(k)) for k in bucket.find("/bucket")}
    assert {k for k in stored if not k.endswith(MANIFEST)} == set(files_of(src))
    assert all(stored[path] == (src / path).read_bytes() for path in files_of(src))
    again = sweep(src)
    assert again.exit_code == 0 and again.runs[0].copied_files == 0 and again.runs[0].action == "unchanged"


def test_a_flipped_byte_and_a_newer_run(src: Path, bucket) -> None:
    assert sweep(src).exit_code == 0
    key = "/bucket/results/group/a/best.pth"
    data = bytearray(bucket.cat_file(key))
    data[7] ^= 1
    bucket.pipe_file(key, bytes(data))
    assert sweep(src, check=True).exit_code == 1
    assert sweep(src).runs[0].action == "repaired"
    make_run(src / "group/a", 4, when=1_700_000_500.0)
    (src / "group/a/last.pth").unlink()
    newer = sweep(src)
    assert newer.exit_code == 0 and newer.runs[0].replaced == ["group/.replaced/a/last.pth"]
    assert bucket.exists("/bucket/results/group/.replaced/a/last.pth") and not bucket.exists(f"{key[:-8]}last.pth")
    make_run(src / "group/a", 5, when=1_700_000_100.0)
    assert [run.status for run in sweep(src).runs] == ["kept-out"]
    assert bytes(bucket.cat_file(key)) != (src / "group/a/best.pth").read_bytes()


def test_a_store_that_keeps_other_bytes_is_found_out(src: Path, bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store below fsspec that drops the tail of what it is sent, as some mounts did (R12)."""
    from fsspec.implementations.memory import MemoryFile

    def cut(self, data):
        return BytesIO.write(self, data[:-1] + b"\0" if self.path.endswith("best.pth") else data)

    monkeypatch.setattr(MemoryFile, "write", cut, raising=False)
    done = sweep(src)
    assert done.exit_code == 1 and "other bytes were read back" in done.runs[0].reasons[0]
    assert not bucket.exists(f"/bucket/results/group/a/{MANIFEST}")


def test_by_the_command_line_on_a_file_url(src: Path, tmp_path: Path) -> None:
    done = underfed("collect", src, f"file://{tmp_path}/out", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["runs"][0]["files"] == 4
    assert (tmp_path / "out/group/a/best.pth").read_bytes() == (src / "group/a/best.pth").read_bytes()


def test_a_missing_extra_is_one_line(src: Path, tmp_path: Path) -> None:
    code = "import sys; sys.modules['fsspec'] = None; sys.argv[0] = 'underfed'; from underfed.cli import entry; entry()"
    done = subprocess.run(
        [sys.executable, "-c", code, "collect", str(src), "s3://bucket/x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "underfed[cloud]" in done.stderr
    assert UNDERFED


def test_a_manifest_that_cannot_be_read_is_the_runs_own_trouble(src: Path, tmp_path: Path) -> None:
    make_run(src / "other", 1)
    (tmp_path / "out/group/a" / MANIFEST).mkdir(parents=True)
    done = underfed("collect", src, f"file://{tmp_path}/out")
    assert done.returncode == 1 and f"{MANIFEST}: " in done.stdout and "verified  other" in done.stdout, done.stdout
