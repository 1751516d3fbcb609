"""What counts as an input: files, folders, patterns, URLs, several of a kind; and where they are read."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
import time

import fsspec
import pytest
from nsight_help import Export
from read_help import SHARED, World, simulate, write

from underfed.diagnosis import from_json
from underfed.errors import UsageError
from underfed.trace.many import read_many
from underfed.trace.places import places_of


def run(*words, **more):
    line = [sys.executable, "-m", "underfed", "read", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False, **more)


@pytest.fixture
def folder(tmp_path):
    world = World(ranks=2, steps=4)
    write(tmp_path, world, simulate(world))
    return tmp_path


def test_urls_of_a_store_are_read_like_files(folder):
    url = f"file://{folder}"
    for words in ([url], [f"{url}/*.json.gz"], [f"{url}/rank0.pt.trace.json.gz", f"{url}/rank1.pt.trace.json.gz"]):
        done = run(*words, "--json")
        assert done.returncode == 0, done.stderr
        found = from_json(done.stdout.encode())
        assert found.subject.ranks == 2
        assert all(path.startswith("file://") for path in found.subject.paths)


def test_an_object_is_streamed_and_gives_the_facts_of_the_file(folder):
    path = folder / "rank0.pt.trace.json.gz"
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/bucket/run 1/rank0.pt.trace.json.gz", path.read_bytes())
    memory.pipe_file("/bucket/run 1/notes.txt", b"no trace")
    places = places_of(["memory://bucket/run 1"])
    assert places == ["memory:///bucket/run 1/rank0.pt.trace.json.gz"]
    assert read_many(places, workers=1)[0][0][1] == read_many([path], workers=1)[0][0][1]
    with pytest.raises(UsageError, match="no object matches"):
        places_of(["memory://bucket/*.nothing"])
    with pytest.raises(UsageError, match="cannot read"):
        read_many(["memory://bucket/missing.json"], workers=1)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("s3://bucket/trace.json", "underfed[cloud]"),
        ("nosuchstore://bucket/trace.json", "cannot be opened"),
        ("file:///no/such/file.json", "cannot read"),
    ],
)
def test_a_url_that_cannot_be_opened_is_one_line(url, said):
    try:
        import s3fs  # noqa: F401
    except ImportError:
        pass
    else:
        if url.startswith("s3"):
            pytest.skip("s3fs is installed here")
    done = run(url)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_prefers_traces_and_takes_an_export_for_its_report(tmp_path):
    for name in (
        "a/config.json",
        "a/run.trace.json",
        "a/b/run.sqlite",
        "a/b/run.nsys-rep",
        "a/b/other.nsys-rep",
        "a/x.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    found = [path.relative_to(tmp_path).as_posix() for path in places_of([str(tmp_path)])]
    assert found == ["a/b/other.nsys-rep", "a/b/run.sqlite", "a/run.trace.json"]
    found = places_of([str(tmp_path / "a/config.json"), str(tmp_path / "a/config.json")])
    assert len(found) == 1


def test_members_of_gzip_and_padding_behind_them_are_one_trace(folder):
    text = gzip.decompress((folder / "rank0.pt.trace.json.gz").read_bytes())
    third = len(text) // 3
    parts = [text[:third], text[third : 2 * third], text[2 * third :]]
    path = folder / "members.json.gz"
    path.write_bytes(b"".join(gzip.compress(part) for part in parts) + b"\0" * 512)
    one, several = (read_many([place], workers=1)[0][0][1] for place in (folder / "rank0.pt.trace.json.gz", path))
    assert several == one


def test_exports_and_traces_mix(folder):
    export = Export(folder / "other.sqlite")
    export.kernel(9, 1000, 2000, "k")
    export.done()
    found, refused = read_many([folder / "rank0.pt.trace.json.gz", folder / "other.sqlite"], workers=2)
    assert len(found) == 2
    assert refused == []


def test_a_killed_reader_costs_one_file(folder, tmp_path_factory):
    """One file is a pipe that nobody fills: the process that reads it is killed from outside, twice."""
    pipe = folder / "stuck.trace.json"
    os.mkfifo(pipe)
    line = [sys.executable, "-c", (
        "import sys, pathlib\n"
        "from underfed.trace.many import read_many\n"
        "if __name__ == '__main__':\n"
        "    found, refused = read_many([pathlib.Path(one) for one in sys.argv[1:]], workers=2)\n"
        "    print(len(found), *refused, sep='\\n')\n"
    )]  # fmt: skip
    files = [folder / "rank0.pt.trace.json.gz", pipe, folder / "rank1.pt.trace.json.gz"]
    running = subprocess.Popen([*line, *map(str, files)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killed: set[int] = set()
    for _ in range(2):
        # Opening the other end succeeds once a reader is there; only then is there a process to kill.
        end = None
        while end is None:
            try:
                end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                time.sleep(0.05)
        victim = holder_of(pipe, {running.pid, os.getpid()} | killed)
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)  # a process that is about to die still holds the pipe for a moment
        os.close(end)
    out, err = running.communicate()
    assert out.splitlines()[0] == "2", err
    assert "was killed" in out.splitlines()[1]
    assert "stuck.trace.json" in out.splitlines()[1]


def holder_of(path, others):
    while True:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) in others:
                continue
            try:
                for number in os.listdir(f"/proc/{pid}/fd"):
                    if os.path.realpath(f"/proc/{pid}/fd/{number}") == str(path):
                        return int(pid)
            except OSError:
                continue
        time.sleep(0.05)


def test_everything_counted_is_written_on_request(folder):
    target = folder / "facts.json"
    done = run(folder / "rank0.pt.trace.json.gz", folder / "rank1.pt.trace.json.gz", "--facts", target)
    assert done.returncode == 0, done.stderr
    facts = json.loads(target.read_text())
    assert facts["schema"] == "underfed.facts/1"
    assert [one["rank"] for one in facts["ranks"]] == [0, 1]
    row = facts["ranks"][0]["collectives"][0]
    assert (row["name"], row["count"], row["size"], row["bytes"]) == ("all_reduce", 8, 2, 8 * 4_000_000)
    seconds = row["total_ns"] * 1e-9
    assert row["bus_gb_s"] == pytest.approx(2 * (2 - 1) / 2 * row["bytes"] / seconds / 1e9)
    assert facts["skew"]["matched"] == 7
    done = run(folder / "rank0.pt.trace.json.gz", "--facts", "/no/such/folder/facts.json")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_trace_that_is_read_is_not_overwritten(folder):
    path = folder / "rank0.pt.trace.json.gz"
    before = path.read_bytes()
    done = run(folder, "--facts", folder / "." / "rank0.pt.trace.json.gz")
    assert done.returncode == 2
    assert "overwrite" in done.stderr
    assert path.read_bytes() == before


def test_a_pipe_is_read_as_a_file_is(folder):
    path = folder / "rank0.pt.trace.json.gz"
    line = f"{sys.executable} -m underfed read --json --step-ms 9"
    command = ["bash", "-c", f"{line} <(zcat {path})"]
    piped = subprocess.run(command, capture_output=True, text=True, check=False)
    assert piped.returncode == 0, piped.stderr
    assert (
        from_json(piped.stdout.encode()).step == from_json(run(path, "--json", "--step-ms", "9").stdout.encode()).step
    )


@pytest.mark.parametrize("name", ["~nobody-of-this-name/t.json", "/dev/zero", "/proc/self/mem", "\udcff\x1b.json"])
def test_odd_paths_are_one_line(name):
    done = run(name)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stderr


def test_a_bar_is_shown_on_a_terminal_alone(tmp_path):
    world = World(ranks=6, steps=3)
    paths = write(tmp_path, world, simulate(world))
    done = run(*paths)
    assert "reading traces" not in done.stderr
    ours, theirs = pty.openpty()
    line = [sys.executable, "-m", "underfed", "read", *map(str, paths)]
    running = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    seen = b""
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:
            break
        seen += more
    assert running.wait() == 0
    assert b"6 of 6" in seen


@pytest.mark.parametrize("on", ["spark", "ray:", "ray://", "http://x"])
def test_other_places_to_read_on_are_refused(folder, on):
    done = run(folder, "--on", on)
    assert done.returncode == 2
    assert "ray://HOST:PORT" in done.stderr


@pytest.mark.slow
def test_ray_reads_as_processes_do(tmp_path):
    pytest.importorskip("ray")
    world = World(ranks=8, steps=4)
    paths = write(tmp_path, world, simulate(world))
    (tmp_path / "bad.trace.json").write_text('{"a": 1}')
    paths.insert(3, tmp_path / "bad.trace.json")
    here = run(*paths, "--json", "--step-ms", "9")
    there = run(*paths, "--json", "--step-ms", "9", "--on", "ray")
    assert there.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    assert "bad.trace.json" in there.stdout


@pytest.mark.skipif(not SHARED.is_dir(), reason="no shared traces beside the repository")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tracelens/mi300__jax_conv_minimal_08__tw003.xplane.pb", "XPlane"),
        ("tracelens/rocprof__908_results.json.gz", "rocprof"),
        ("param/resnet_2gpu_et.json.gz", "execution trace"),
    ],
)
def test_real_files_of_other_formats_are_named(name, said):
    done = run(SHARED / "traces" / name)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
