"""Exports of Nsight Systems: the same events as in a torch trace give the same facts, and what is odd is said."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsight_help import Export
from read_help import World, simulate

from underfed.diagnosis import from_json
from underfed.errors import UsageError
from underfed.trace import rank_facts, trace_facts
from underfed.trace.meaning import diagnosis_of

NAMES = ("void gemm_tensorop<float>(int)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "elementwise_kernel")
KINDS = {
    "HtoD": (1, 0, 2, "Pageable -> Device"),
    "DtoH": (2, 2, 1, "Device -> Pinned"),
    "DtoD": (8, 2, 2, "Device -> Device"),
}

device_rows = st.lists(
    st.tuples(
        st.integers(0, 60_000), st.integers(0, 9_000), st.integers(0, 1), st.integers(1, 3),
        st.sampled_from(["kernel", "copy", "set"]), st.sampled_from(NAMES), st.sampled_from(sorted(KINDS)),
    ),
    min_size=1, max_size=25,
)  # fmt: skip
host_rows = st.lists(
    st.tuples(
        st.integers(0, 60_000), st.integers(0, 9_000), st.integers(1, 2),
        st.sampled_from(["cudaLaunchKernel", "cudaStreamSynchronize", "cudaMemcpyAsync", "cudaMalloc", "aten::add",
                         "step 3", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"]),
    ),
    max_size=25,
)  # fmt: skip


def both(folder, device, host):
    """One run in both formats: the torch trace has ns as decimals of us."""
    export = Export(folder / "run.sqlite")
    events = []
    for number, (start, length, gpu, stream, what, name, way) in enumerate(device):
        kind, source, target, text = KINDS[way]
        row = {"ph": "X", "pid": gpu, "tid": stream, "ts": start / 1000, "dur": length / 1000}
        args = {"device": gpu, "stream": stream, "correlation": number}
        place = {"device": gpu, "stream": stream, "correlation": number}
        if what == "kernel":
            export.kernel(50, start, start + length, name, **place)
            events.append({**row, "cat": "kernel", "name": name, "args": args})
        elif what == "copy":
            export.copy(50, start, start + length, kind, source, target, 4096, **place)
            events.append(
                {**row, "cat": "gpu_memcpy", "name": f"Memcpy {way} ({text})", "args": {**args, "bytes": 4096}}
            )
        else:
            export.memset(50, start, start + length, 64, **place)
            events.append({**row, "cat": "gpu_memset", "name": "Memset", "args": {**args, "bytes": 64}})
    for number, (start, length, asked, name) in enumerate(host):
        # Which of two threads with equally many step marks counts is anyone's choice.
        thread = asked if name.startswith(("cuda", "aten")) else 1
        row = {"ph": "X", "pid": 50, "tid": thread, "ts": start / 1000, "dur": length / 1000, "name": name}
        if name.startswith("cuda"):
            export.call(50, thread, start, start + length, name + "_v7000", number)
            events.append({**row, "cat": "cuda_runtime", "args": {"correlation": number}})
        else:
            tail = ", seq = 7, op_id = 3" if name == "aten::add" else ""
            export.range(50, thread, start, start + length, name + tail, registered=number % 2 == 0)
            events.append({**row, "cat": "cpu_op" if "::" in name else "user_annotation"})
    document = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000, "traceEvents": events}
    torch = folder / "run.json"
    torch.write_text(json.dumps(document))
    return export.done(), torch


@settings(max_examples=80, deadline=None)
@given(device_rows, host_rows)
def test_the_same_events_give_the_same_facts_as_a_torch_trace(tmp_path_factory, device, host):
    nsight, torch = (trace_facts(path) for path in both(tmp_path_factory.mktemp("both"), device, host))
    for name in nsight.__struct_fields__:
        if name in ("events", "limits", "kernels", "devices", "collectives", "log"):
            continue
        assert getattr(nsight, name) == getattr(torch, name), name
    by_id = [sorted(one.devices, key=lambda device: device.id) for one in (nsight, torch)]
    for one, other in zip(*by_id, strict=True):
        for name in one.__struct_fields__:
            if name not in ("gaps", "path"):  # of two events that end at one moment, either may be taken for the cause
                assert getattr(one, name) == getattr(other, name), name
    rows = [{(row.name, row.count, row.total_ns) for row in one.kernels} for one in (nsight, torch)]
    assert rows[0] == rows[1]
    assert [limit for limit in nsight.limits if "without a usable" in limit] == []


def test_shapes_that_emit_nvtx_writes_are_those_of_the_kernels(tmp_path):
    export = Export(tmp_path / "t.sqlite")
    export.range(9, 1, 0, 50_000, "forward")
    export.range(9, 1, 0, 10_000, "aten::mm, op_id = 3, sizes = [[64, 128], [128, 32]]")
    export.range(
        9, 1, 20_000, 30_000, "aten::relu, op_id = 4, sizes = [[64, 32]], input_op_ids = [(3,0)]", registered=True
    )
    for number, begin in ((1, 1_000), (2, 21_000)):
        export.call(9, 1, begin, begin + 2_000, "cudaLaunchKernel_v7000", number)
        export.kernel(9, begin + 5_000, begin + 9_000, f"k{number}", correlation=number)
    uses = trace_facts(export.done()).uses
    assert {(one.name, one.operator, one.shape, one.types, one.module) for one in uses} == {
        ("k1", "aten::mm", "64x128, 128x32", None, "forward"),
        ("k2", "aten::relu", "64x32", None, "forward"),
    }


def test_processes_of_one_export_are_ranks_and_keep_their_own_correlations(tmp_path):
    world = World(ranks=3, slow={1: 2_000_000})
    run = simulate(world)
    export = Export(tmp_path / "node.sqlite")
    for rank in range(3):
        pid = 100 + rank
        export.card(rank, f"NVIDIA H200 #{rank}", pid, 0)
        for step, begin, end in run.marks[rank]:
            export.range(pid, pid, begin, end, f"step {step}")
        for number, (name, start, end, step) in enumerate(run.kernels[rank]):
            begin = run.marks[rank][step][1]
            export.call(pid, pid, max(begin, start - 8_000), max(begin, start - 8_000) + 5_000,
                        "cudaLaunchKernel_v7000", number)  # fmt: skip
            kernel = NAMES[1] if name.startswith("comm") else NAMES[0]
            export.kernel(pid, start, end, kernel, correlation=number, stream=20 if name.startswith("comm") else 7)
    facts = rank_facts(export.done())
    assert [one.device_name for one in facts] == ["NVIDIA H200 #0", "NVIDIA H200 #1", "NVIDIA H200 #2"]
    assert [one.step_source for one in facts] == ["range"] * 3
    assert [len(one.steps) for one in facts] == [12] * 3
    assert all(one.launches.unmatched_events == 0 for one in facts)
    found = diagnosis_of(facts, ["node.sqlite"], run.step_ns / 1e6)
    assert "rank 1" in found.verdict.text
    assert found.subject.ranks == 3


def test_graphs_that_were_recorded_whole_count_as_work_and_are_said(tmp_path):
    export = Export(tmp_path / "g.sqlite")
    export.database.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
        " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER)"
    )
    export.call(9, 9, 100, 200, "cudaGraphLaunch_v10000", 1)
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=1000, end=5000, deviceId=0, streamId=7, correlationId=1,
               globalPid=export.process(9), graphId=1)  # fmt: skip
    facts = trace_facts(export.done())
    assert facts.devices[0].totals.busy_ns == 4000
    assert facts.launches.graphs == 1
    assert any("cuda-graph-trace=node" in limit for limit in facts.limits)


@pytest.mark.parametrize(
    "drop",
    [
        "NVTX_EVENTS",
        "ENUM_CUDA_MEM_KIND",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "TARGET_INFO_GPU",
        "TARGET_INFO_SESSION_START_TIME",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "ENUM_NSYS_EVENT_TYPE",
    ],
)
def test_tables_that_a_version_lacks_cost_only_what_they_say(tmp_path, drop):
    device = [(1000, 500, 0, 1, "kernel", NAMES[0], "HtoD"), (3000, 100, 0, 1, "copy", NAMES[0], "HtoD")]
    path, _ = both(tmp_path, device, [(0, 10, 1, "cudaLaunchKernel"), (0, 50, 1, "aten::add")])
    with sqlite3.connect(path) as database:
        database.execute(f"DROP TABLE {drop}")
    facts = trace_facts(path)
    assert facts.devices[0].totals.busy_ns == 600
    if drop == "ENUM_CUDA_MEM_KIND":
        assert facts.copies[0].pinned is None
    if drop == "NVTX_EVENTS":
        assert any("NVTX" in limit for limit in facts.limits)


def test_old_exports_without_process_ids_are_one_process(tmp_path):
    path, _ = both(tmp_path, [(1000, 500, 0, 1, "kernel", NAMES[0], "HtoD")], [(0, 10, 1, "cudaLaunchKernel")])
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN globalPid")
    facts = trace_facts(path)
    assert facts.launches.matched == 1


def test_cells_of_any_type_are_left_out_and_said(tmp_path):
    export = Export(tmp_path / "t.sqlite")
    export.kernel(9, 1000, 2000, "k")
    for start, end in (("x", 5), (None, 5), (2**63 - 1, -(2**63)), (5.5, "7e99"), (b"\xff", 1), (10, 2**62)):
        begin = start if start is not None else -1
        export.add("CUPTI_ACTIVITY_KIND_MEMSET", start=begin, end=end, deviceId=0, contextId=1, streamId=7,
                   correlationId="no", globalPid=export.process(9), value=0, bytes=0)  # fmt: skip
    facts = trace_facts(export.done())
    assert facts.devices[0].totals.compute_ns == 1000
    assert any("without a usable time" in limit or "end before" in limit for limit in facts.limits)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda path: sqlite3.connect(path).executescript("CREATE TABLE a (b INTEGER);").connection.close(),
            "without Nsight",
        ),
        (lambda path: Export(path).done(), "no GPU work"),
        (lambda path: path.write_bytes(b"SQLite format 3\x00" + b"\x07" * 5000), "SQLite"),
    ],
)
def test_what_is_no_export_is_one_line(tmp_path, make, said):
    path = tmp_path / "x.sqlite"
    make(path)
    with pytest.raises(UsageError, match=said) as caught:
        trace_facts(path)
    assert "\n" not in str(caught.value)


def test_a_view_in_place_of_a_table_is_not_run(tmp_path):
    export = Export(tmp_path / "v.sqlite")
    export.kernel(9, 1000, 2000, "k")
    path = export.done()
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE NVTX_EVENTS")
        database.execute("CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
                         "SELECT x AS start, x AS end FROM c")  # fmt: skip
    assert trace_facts(path).devices[0].totals.busy_ns == 1000


def command(*words, **more):
    line = [sys.executable, "-m", "underfed", "read", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False, **more)


def test_a_report_without_nsys_says_what_to_do(tmp_path):
    path = tmp_path / "report1.nsys-rep"
    path.write_bytes(b"anything")
    done = command(path, env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 2
    assert "nsys export --type sqlite" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_report_is_exported_where_nsys_is(tmp_path):
    export, _ = both(tmp_path, [(1000, 500, 0, 1, "kernel", NAMES[0], "HtoD")], [(0, 10, 1, "cudaLaunchKernel")])
    tools = tmp_path / "bin"
    tools.mkdir()
    nsys = tools / "nsys"
    nsys.write_text(f'#!/bin/sh\nfor last; do :; done\n[ -s "$last" ] || {{ echo "bad report" >&2; exit 3; }}\n'
                    f'shift 4\n{shutil.which("cp")} "{export}" "$1"\n')  # fmt: skip
    nsys.chmod(nsys.stat().st_mode | stat.S_IXUSR)
    report = tmp_path / "r.nsys-rep"
    report.write_bytes(b"report")
    environment = {**os.environ, "PATH": str(tools)}
    done = command(report, "--json", env=environment)
    assert done.returncode == 0, done.stderr
    assert from_json(done.stdout.encode()).device[0].busy_ms == 0.0005
    report.write_bytes(b"")
    done = command(report, env=environment)
    assert done.returncode == 2
    assert "bad report" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_damaged_exports_end_in_facts_or_one_line(tmp_path):
    rng = random.Random(10)
    device = [(rng.randrange(90_000), rng.randrange(900), 0, 1, what, name, way)
              for what in ("kernel", "copy", "set") for name in NAMES for way in KINDS for _ in range(12)]  # fmt: skip
    host = [(rng.randrange(90_000), rng.randrange(900), 1, "cudaLaunchKernel") for _ in device]
    whole, _ = both(tmp_path, device, host)
    data = whole.read_bytes()
    path = tmp_path / "damaged.sqlite"
    outcomes = {"facts": 0, "refused": 0}
    for number in range(400):
        changed = bytearray(data)
        if number % 4 == 0:
            del changed[rng.randrange(len(changed)) :]
        for _ in range(rng.randrange(1, 60)):
            if changed:
                changed[rng.randrange(len(changed))] = rng.randrange(256)
        path.write_bytes(bytes(changed))
        try:
            facts = rank_facts(path)
        except UsageError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
            continue
        outcomes["facts"] += 1
        for one in facts:
            for unit in one.devices:
                assert 0 <= unit.totals.busy_ns <= unit.totals.span_ns
                assert sum(unit.idle_ns.values()) + unit.region_busy_ns == unit.region_ns
        diagnosis_of(facts, ["damaged.sqlite"])
    assert min(outcomes.values()) > 20, outcomes
