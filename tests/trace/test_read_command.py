"""`underfed read` as users call it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from underfed.diagnosis import from_json


def run(*words, cwd=None):
    command = [sys.executable, "-m", "underfed", "read", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def trace(rank=None, idle=9, steps=12):
    """Steps of `idle` + 1 ms: one launch, whose kernel takes 1 ms; a second rank has a kernel that communicates."""
    events = []
    for step in range(steps):
        start = step * 1000.0 * (idle + 1)
        row = {"ph": "X", "pid": 1, "tid": 1, "ts": start}
        events.append({**row, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "dur": 1000.0 * (idle + 1)})
        launch = start + 1000.0 * idle - 10
        args = {"correlation": step}
        events.append({**row, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launch, "dur": 5, "args": args})
        for at in range(int(idle * 10)):
            events.append({**row, "cat": "cpu_op", "name": "aten::add", "ts": start + at * 100, "dur": 90})
        args = {"device": rank or 0, "stream": 7, "correlation": step}
        kernel = {"cat": "kernel", "name": "gemm", "pid": rank or 0, "tid": 7, "ts": launch + 10, "dur": 1000.0}
        events.append({**row, **kernel, "args": args})
    document = {"schemaVersion": 1, "traceEvents": events}
    if rank is not None:
        document["distributedInfo"] = {"rank": rank, "world_size": 2}
    return json.dumps(document)


def test_the_card_and_the_json_say_the_same(tmp_path):
    path = tmp_path / "run.pt.trace.json"
    path.write_text(trace())
    shown = run(path, "--step-ms", "10")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("underfed: host-bound")
    printed = run(path, "--step-ms", "10", "--json")
    assert printed.returncode == 0, printed.stderr
    found = from_json(printed.stdout.encode())
    assert found.verdict.bound == "host"
    assert found.subject.steps == 12
    assert found.step.ms == 10.0
    assert found.step.device_ms == pytest.approx(1.0)
    assert found.device[0].busy_ms == 12.0
    assert found.subject.paths == [str(path)]


def test_folders_patterns_and_files_are_one_run_of_several_ranks(tmp_path):
    for rank in (0, 1):
        (tmp_path / f"rank{rank}.trace.json.gz").write_bytes(gzip.compress(trace(rank=rank).encode()))
    (tmp_path / "config.json").write_text("{}")
    for words in (
        [tmp_path],
        ["*.trace.json.gz"],
        [tmp_path / "rank0.trace.json.gz", tmp_path / "rank1.trace.json.gz"],
    ):
        found = from_json(run(*words, "--json", cwd=tmp_path).stdout.encode())
        assert found.subject.ranks == 2
        assert [device.rank for device in found.device] == [0, 1]


def test_one_bad_file_among_several_is_a_limit_and_alone_an_error(tmp_path):
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(trace())
    bad.write_text('{"a": 1}')
    both = run(good, bad, "--json")
    assert both.returncode == 0
    assert any("left out" in limit and "bad.json" in limit for limit in from_json(both.stdout.encode()).limits)
    alone = run(bad)
    assert alone.returncode == 2
    assert alone.stdout == ""
    assert len(alone.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no trace"),
        (["missing.json"], "cannot read missing.json"),
        (["*.nothing"], "no file matches"),
        (["empty"], "holds no .json"),
        (["t.json", "--step-ms", "0"], "above 0"),
        (["t.json", "--step-ms", "nan"], "above 0"),
    ],
)
def test_mistakes_are_one_line(tmp_path, words, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.json").write_text(trace())
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_names_in_a_trace_cannot_reach_the_terminal(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(trace().replace("gemm", "\\u001b[31mred\\u0007"))
    done = run(path)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\x07" not in done.stdout


def test_processes_give_the_same_facts(tmp_path):
    from underfed.trace.many import read_many

    paths = []
    for rank in (0, 1, 2):
        paths.append(tmp_path / f"{rank}.json")
        paths[-1].write_text(trace(rank=rank))
    paths.append(tmp_path / "bad.json")
    paths[-1].write_text("[[[")
    assert read_many(paths, workers=2) == read_many(paths, workers=1)


def test_several_processes_read_one_large_trace_as_one_does(tmp_path, monkeypatch):
    from underfed.trace import parallel
    from underfed.trace.kineto import read

    monkeypatch.setattr(parallel, "LARGE_PLAIN", 1)
    monkeypatch.setattr(parallel, "LARGE_GZIP", 1)
    monkeypatch.setattr(parallel, "HEAD_START", 2)
    text = trace(steps=400).replace('"args": {"device"', '"args": {"Collective name": "allreduce", "Seq": 3, "device"')
    shaped = (
        '"name": "aten::add", "args": {"Input Dims": [[2, 3], []], "Input type": ["float", ""], "Sequence number": 9},'
    )
    text = text.replace('"name": "aten::add",', shaped, 900)
    text = text.replace('{"schemaVersion": 1,', '{"schemaVersion": 1, "with_stack": 1,')
    plain, packed = tmp_path / "t.json", tmp_path / "t.json.gz"
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, packed):
        one = read(path)
        shares = [parallel.read_share(str(path), index, 3, 1) for index in range(3)]
        assert all(share is not None and share.chunks for share in shares)
        assert min(share.columns.events for share in shares) > 0
        several = parallel.joined(shares, 1)
        device, host = several.tables()
        assert several.events == one.events
        assert list(several.collectives) == list(one.collectives)
        assert len(one.collectives) == 400
        names = list(several.names)
        for column in ("start", "end", "kind", "device", "stream", "correlation", "bytes"):
            assert getattr(device, column).tolist() == getattr(one.device, column).tolist()
        assert one.shapes == (("[[2, 3], []]", '["float", ""]'),)
        assert (one.host.shape == 0).sum() == (one.host.sequence == 9).sum() == 900
        for column in ("start", "end", "kind", "correlation", "shape", "sequence"):
            assert getattr(host, column).tolist() == getattr(one.host, column).tolist()
        assert [names[at] for at in host.name.tolist()] == [one.names[at] for at in one.host.name.tolist()]
        assert read(path, processes=2).events == one.events


def test_a_large_trace_with_a_broken_event_is_read_by_one_process(tmp_path, monkeypatch):
    from underfed.trace import parallel
    from underfed.trace.kineto import read

    monkeypatch.setattr(parallel, "LARGE_PLAIN", 1)
    path = tmp_path / "t.json"
    text = trace(steps=400)
    middle = text.index('"aten::add"', len(text) // 2)
    path.write_text(text[:middle] + text[middle + 1 :])
    assert parallel.read_share(str(path), 0, 1, 0) is None
    found = read(path, processes=2)
    assert found.limits == ("1 broken event was left out",)
