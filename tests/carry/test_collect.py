"""collect: what is taken, what is skipped, who wins, and when it says verified."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import blake3
import pytest
from carry_help import age, files_of, make_run, tree, underfed

from underfed.cli import main

T0 = 1_700_000_000.0
MANIFEST = "underfed-manifest.jsonl"


@pytest.fixture
def src(tmp_path: Path) -> Path:
    for number, name in enumerate(("a", "group/b")):
        make_run(tmp_path / "src" / name, number)
    (tmp_path / "src" / "crashed").mkdir()
    (tmp_path / "src" / "crashed" / "last.pth").write_bytes(b"x")
    return tmp_path / "src"


def by_path(done) -> dict[str, dict]:
    return {run["path"]: run for run in json.loads(done.stdout)["runs"]}


def test_finished_runs_arrive_whole_with_a_manifest_that_holds(src: Path, tmp_path: Path) -> None:
    before = tree(src)
    done = underfed("collect", src, tmp_path / "dst")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "crashed  unfinished: no best_metrics.json" in done.stdout
    assert "2 runs verified" in done.stdout and "inodes" in done.stdout
    for name in ("a", "group/b"):
        out = tmp_path / "dst" / name
        expected = {k: v for k, v in files_of(src / name).items() if k != "last.pth"}
        assert {k: v for k, v in files_of(out).items() if k != MANIFEST} == expected
        raw = (out / MANIFEST).read_bytes()
        *lines, last = [json.loads(line) for line in raw.splitlines()]
        assert last["digest"] == blake3.blake3(raw[: raw.rindex(b"\n", 0, -1) + 1]).hexdigest()
        for line in lines[1:]:
            data = (out / line["path"]).read_bytes()
            assert line["blake3"] == blake3.blake3(data).hexdigest() and line["size"] == len(data)
            assert line["state"] == "verified" and line["mtime_ns"] == (out / line["path"]).stat().st_mtime_ns
        assert {line["path"] for line in lines[1:]} == set(expected)
    assert tree(src) == before
    assert not (tmp_path / "dst" / "crashed").exists()


def test_a_rerun_copies_nothing_and_changes_nothing(src: Path, tmp_path: Path) -> None:
    assert underfed("collect", src, tmp_path / "dst").returncode == 0
    states = {p: p.stat().st_ino for p in (tmp_path / "dst").rglob("*")}
    done = underfed("collect", src, tmp_path / "dst", "--json")
    assert done.returncode == 0
    assert all(run["copied_files"] == 0 and run["action"] == "unchanged" for run in by_path(done).values())
    assert {p: p.stat().st_ino for p in (tmp_path / "dst").rglob("*")} == states


def test_marker_take_all_and_also(src: Path, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text("beside")
    (src / "crashed" / "DONE.txt").touch()
    done = underfed("collect", src, tmp_path / "d1", "--marker", "DONE.*", "--take", "last.pth")
    assert done.returncode == 0, done.stdout
    assert set(files_of(tmp_path / "d1")) == {"crashed/DONE.txt", "crashed/last.pth", f"crashed/{MANIFEST}"}
    done = underfed("collect", src, tmp_path / "d2", "--all", "--also", "../logs/{name}.log")
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "d2/a/last.pth").exists() and (tmp_path / "d2/a/a.log").read_text() == "beside"
    assert "nothing there" in done.stdout  # group/b has no log; said, not hidden


def test_a_named_file_that_is_not_there_is_not_verified(src: Path, tmp_path: Path) -> None:
    """The script's gate: metrics without best.pth is a failure."""
    (src / "a" / "best.pth").unlink()
    done = underfed("collect", src, tmp_path / "d1")
    assert done.returncode == 1 and "no best checkpoint" in done.stdout
    done = underfed("collect", src, tmp_path / "d2", "--take", "best.pth")
    assert done.returncode == 1 and "--take best.pth: nothing of that name" in done.stdout
    assert not (tmp_path / "d2/a" / MANIFEST).exists()


def test_roster_gaps_fail_and_extra_runs_are_listed(src: Path, tmp_path: Path) -> None:
    roster = tmp_path / "roster.txt"
    roster.write_text("# the sweep\na\n\n")
    done = underfed("collect", src, tmp_path / "dst", "--expect", roster)
    assert done.returncode == 0 and "not in the roster" in done.stdout
    roster.write_text("a\nb  # by its own name\ncrashed\nnever\n")
    done = underfed("collect", src, tmp_path / "dst", "--expect", roster)
    assert done.returncode == 1
    assert "MISSING   crashed  unfinished" in done.stdout and "MISSING   never  missing" in done.stdout
    assert "MISSING   b" not in done.stdout
    roster.write_text("# nothing\n")
    done = underfed("collect", src, tmp_path / "dst", "--expect", roster)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_nested_runs_are_runs_of_their_own(src: Path, tmp_path: Path) -> None:
    make_run(src / "a" / "retry", 9)
    assert underfed("collect", src, tmp_path / "dst", "--all").returncode == 0
    outer = (tmp_path / "dst/a" / MANIFEST).read_text()
    assert "retry" not in outer and (tmp_path / "dst/a/retry" / MANIFEST).exists()


def test_a_run_that_is_the_source_itself(tmp_path: Path) -> None:
    make_run(tmp_path / "only")
    assert underfed("collect", tmp_path / "only", tmp_path / "dst").returncode == 0
    assert (tmp_path / "dst/best.pth").exists() and (tmp_path / "dst" / MANIFEST).exists()


def test_newer_replaces_older_never_and_same_time_is_a_conflict(src: Path, tmp_path: Path) -> None:
    dst = tmp_path / "dst"
    (src / "a" / "protocol" / "old.yaml").write_text("gone later")
    age(src / "a", T0)
    assert underfed("collect", src, dst).returncode == 0
    first = (src / "a" / "best.pth").read_bytes()

    make_run(src / "a", 5, when=T0 + 100)
    (src / "a" / "protocol" / "old.yaml").unlink()
    done = underfed("collect", src, dst)
    assert done.returncode == 0 and "replaced an older result" in done.stdout
    second = (src / "a" / "best.pth").read_bytes()
    assert (dst / "a/best.pth").read_bytes() == second != first
    assert (dst / ".replaced/a/protocol/old.yaml").read_text() == "gone later"
    assert not (dst / "a/protocol/old.yaml").exists()

    make_run(src / "a", 6, when=T0 + 50)
    done = underfed("collect", src, dst)
    assert done.returncode == 0 and "kept out" in done.stdout and "newer by 50.0 s" in done.stdout
    assert (dst / "a/best.pth").read_bytes() == second

    make_run(src / "a", 7, when=T0 + 100)
    before = tree(dst)
    done = underfed("collect", src, dst)
    assert done.returncode == 1 and "CONFLICT" in done.stdout
    for path in (src / "a/best.pth", dst / "a/best.pth"):
        assert blake3.blake3(path.read_bytes()).hexdigest() in done.stdout
    assert tree(dst) == before
    done = underfed("collect", src, dst, "--force")
    assert done.returncode == 0
    assert (dst / "a/best.pth").read_bytes() == (src / "a/best.pth").read_bytes()


def test_the_markers_time_decides_and_not_that_of_another_file(src: Path, tmp_path: Path) -> None:
    dst = tmp_path / "dst"
    assert underfed("collect", src, dst).returncode == 0
    before = (dst / "a/best.pth").read_bytes()
    make_run(src / "a", 5, when=T0 + 100)
    os.utime(src / "a/best_metrics.json", (T0 - 100, T0 - 100))
    done = underfed("collect", src, dst)
    assert done.returncode == 0 and "kept out" in done.stdout and (dst / "a/best.pth").read_bytes() == before


def test_an_older_source_is_not_fine_when_the_newer_copy_is_broken(src: Path, tmp_path: Path) -> None:
    dst = tmp_path / "dst"
    make_run(src / "a", 5, when=T0 + 100)
    assert underfed("collect", src, dst).returncode == 0
    make_run(src / "a", 6, when=T0)
    with open(dst / "a/best.pth", "r+b") as file:
        file.write(b"\0\0\0\0\0\0")
    done = underfed("collect", src, dst)
    assert done.returncode == 1 and "other bytes, such as best.pth" in done.stdout


def test_files_that_the_old_script_left_are_proven_whatever_their_time(src: Path, tmp_path: Path) -> None:
    """`cp -f` gives copies the time of copying; equal bytes are equal bytes."""
    out = tmp_path / "dst" / "a"
    out.mkdir(parents=True)
    for name in ("best.pth", "best_metrics.json"):
        (out / name).write_bytes((src / "a" / name).read_bytes())
    assert underfed("collect", src, tmp_path / "dst").returncode == 0
    assert (out / MANIFEST).exists()


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "zeros", "gone"])
def test_presence_and_size_are_not_content(src: Path, tmp_path: Path, damage: str) -> None:
    """The script's check (`-f best.pth`) passes four of these; a size check two."""
    dst = tmp_path / "dst"
    assert underfed("collect", src, dst).returncode == 0
    victim = dst / "a/best.pth"
    state, data = victim.stat(), bytearray(victim.read_bytes())
    if damage == "flip":
        data[54_321] ^= 1
    changed = {"truncate": data[:-1], "empty": b"", "zeros": bytes(len(data))}.get(damage, data)
    victim.unlink() if damage == "gone" else victim.write_bytes(changed)
    if damage != "gone":
        os.utime(victim, ns=(state.st_atime_ns, state.st_mtime_ns))
    done = underfed("collect", src, dst, "--check", "--json")
    assert done.returncode == 1
    assert by_path(done)["a"]["status"] == "unverified" and by_path(done)["group/b"]["status"] == "verified"
    done = underfed("collect", src, dst, "--json")
    assert done.returncode == 0 and by_path(done)["a"]["action"] == "repaired"
    assert victim.read_bytes() == (src / "a/best.pth").read_bytes()


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"\xff\xfe", b"[" * 100_000, b'{"schema": 5}\n{}\n{}\n'])
def test_a_broken_manifest_is_no_proof(src: Path, tmp_path: Path, damage: bytes) -> None:
    dst = tmp_path / "dst"
    assert underfed("collect", src, dst).returncode == 0
    whole = (dst / "a" / MANIFEST).read_bytes()
    (dst / "a" / MANIFEST).write_bytes(damage)
    assert underfed("collect", src, dst, "--check").returncode == 1
    assert underfed("collect", src, dst).returncode == 0
    assert (dst / "a" / MANIFEST).read_bytes() == whole


def test_links_are_followed_inside_and_named_outside(src: Path, tmp_path: Path) -> None:
    """R01: a farm of links arrived as dead links."""
    (src / "blobs").mkdir()
    (src / "blobs" / "w").write_bytes(b"weights" * 1000)
    (src / "a" / "best_link.pth").symlink_to("../blobs/w")
    done = underfed("collect", src, tmp_path / "d1")
    assert done.returncode == 0, done.stdout
    out = tmp_path / "d1/a/best_link.pth"
    assert not out.is_symlink() and out.read_bytes() == b"weights" * 1000
    done = underfed("collect", src, tmp_path / "d2", "--links", "refuse")
    assert done.returncode == 1 and "links are refused" in done.stdout
    (tmp_path / "outside").write_text("x")
    (src / "a" / "best_out.pth").symlink_to(tmp_path / "outside")
    (src / "group/b" / "best_dead.pth").symlink_to("nowhere")
    (src / "group/b" / "protocol" / "loop").symlink_to("..")
    done = underfed("collect", src, tmp_path / "d3", "--json")
    runs = by_path(done)
    assert done.returncode == 1
    assert any("leaves the source" in reason for reason in runs["a"]["reasons"])
    assert any("dead link to nowhere" in reason for reason in runs["group/b"]["reasons"])
    assert any("leads back" in reason for reason in runs["group/b"]["reasons"])
    assert not any(path.is_symlink() for path in (tmp_path / "d3").rglob("*"))
    assert not list((tmp_path / "d3").rglob(MANIFEST))


def test_a_linked_run_is_collected_once(src: Path, tmp_path: Path) -> None:
    (src / "latest").symlink_to("a")
    (src / "gone").symlink_to("nowhere")
    done = underfed("collect", src, tmp_path / "dst")
    assert done.returncode == 1 and "latest  link to a" in done.stdout and "dead link to nowhere" in done.stdout
    assert not (tmp_path / "dst/latest").exists()


def test_a_link_in_the_destination_is_not_written_through(src: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "dst/a").mkdir(parents=True)
    (tmp_path / "dst/a/protocol").symlink_to(tmp_path / "elsewhere")
    done = underfed("collect", src, tmp_path / "dst")
    assert done.returncode == 1 and not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("linked", ["a", "a/protocol"])
def test_what_lies_behind_a_link_in_the_destination_is_no_copy(src: Path, tmp_path: Path, linked: str) -> None:
    """It may be the source itself."""
    dst = tmp_path / "dst"
    assert underfed("collect", src, dst).returncode == 0
    shutil.rmtree(dst / linked)
    (dst / linked).symlink_to(src / linked)
    for words in (["--check"], []):
        done = underfed("collect", src, dst, *words)
        assert done.returncode == 1 and "a link" in done.stdout, done.stdout
        assert "verified  a " not in done.stdout


def test_the_destination_itself_may_be_a_link(src: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "dst").symlink_to("real")
    assert underfed("collect", src / "a", tmp_path / "dst").returncode == 0
    assert underfed("collect", src / "a", tmp_path / "dst", "--check").returncode == 0


def test_a_check_of_a_destination_that_is_not_there(src: Path, tmp_path: Path) -> None:
    done = underfed("collect", src, tmp_path / "nowhere", "--check")
    assert done.returncode == 1 and "missing in the destination" in done.stdout and done.stderr == ""
    assert "not known" in done.stdout.splitlines()[-1] and not (tmp_path / "nowhere").exists()


def test_shards_of_an_index_must_be_there(src: Path, tmp_path: Path) -> None:
    """R02: one shard of three is still `.incomplete`."""
    index = {"weight_map": {"x": "model-1-of-2.safetensors", "y": "model-2-of-2.safetensors"}}
    (src / "a/model.safetensors.index.json").write_text(json.dumps(index))
    (src / "a/model-1-of-2.safetensors").write_bytes(b"1")
    (src / "a/model-2-of-2.safetensors.incomplete").write_bytes(b"2")
    done = underfed("collect", src, tmp_path / "dst", "--all")
    assert done.returncode == 1 and "names model-2-of-2.safetensors, which is not" in done.stdout


def test_names_that_are_hard_to_carry(tmp_path: Path) -> None:
    run = make_run(tmp_path / "src" / "-rf two  words\n'quote\" ü \\")
    for name in ("--help", "new\nline", "caf\u00e9", os.fsdecode(b"\xff\xfe"), "\x1b[2J", "*?[", "a" * 250):
        (run / name).write_text(name, errors="surrogateescape")
    (run / "/".join(["deep"] * 60)).mkdir(parents=True)
    (run / "/".join(["deep"] * 60) / "f").write_text("far down")
    done = underfed("collect", tmp_path / "src", tmp_path / "dst", "--all")
    assert done.returncode == 0, done.stdout
    assert "\x1b" not in done.stdout
    assert files_of(tmp_path / "dst", (MANIFEST,)) == files_of(tmp_path / "src")
    assert underfed("collect", tmp_path / "src", tmp_path / "dst", "--all", "--check").returncode == 0


def refused(*_: object) -> int:
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


@pytest.mark.parametrize("call", ["pwrite", "preadv", "none"])
def test_a_disk_that_refuses_what_goes_past_the_cache(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such files go through it then; sizes that are no multiple of a block arrive whole by either way."""
    run = make_run(tmp_path / "src/a", size=9_000_001)
    with open(run / "best.bin", "wb") as file:
        file.seek(10 << 20)
        file.write(b"end")
    if call != "none":
        monkeypatch.setattr(os, call, refused)
    for words in ([], ["--check"]):
        assert main(["collect", str(tmp_path / "src"), str(tmp_path / "dst"), *words]) == 0
    for name in ("best.pth", "best.bin"):
        assert (tmp_path / "dst/a" / name).read_bytes() == (run / name).read_bytes()


def test_holes_stay_holes(tmp_path: Path) -> None:
    run = make_run(tmp_path / "src/a")
    with open(run / "best.bin", "wb") as file:
        file.seek(300 << 20)
        file.write(b"end")
    assert underfed("collect", tmp_path / "src", tmp_path / "dst").returncode == 0
    out = tmp_path / "dst/a/best.bin"
    assert out.stat().st_size == (300 << 20) + 3 and out.stat().st_blocks * 512 < 10 << 20


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["missing", "dst"], "no such folder"),
        (["src", "src/inside"], "inside one another"),
        (["src", "src"], "inside one another"),
        (["src", ""], "DST is empty"),
        (["src", "dst", "--all", "--take", "x"], "exclude each other"),
        (["src", "dst", "--expect", "nofile"], "No such file"),
        (["src", "file/below"], "cannot be made"),
        (["src", "nosuch://x"], "nosuch"),
    ],
)
def test_what_cannot_start_says_so_in_one_line(
    src: Path, tmp_path: Path, words: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    done = underfed("collect", *words)
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1


def test_nothing_found_is_not_success(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    done = underfed("collect", tmp_path / "src", tmp_path / "dst")
    assert done.returncode == 1 and "nothing found to collect" in done.stdout
