"""Damaged and odd traces: what is whole is read and the rest is said, and other formats are named in one line."""

from __future__ import annotations

import gzip
import json

import pytest
from trace_oracle import SHARED

from underfed.errors import UsageError
from underfed.trace import trace_facts
from underfed.trace.kineto import read


def event(ts, dur=1.0, **more):
    plain = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": ts, "dur": dur}
    return {**plain, "args": {"device": 0, "stream": 7, "correlation": int(ts)}, **more}


def write(tmp_path, text, name="t.json"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def document(*events):
    return json.dumps({"schemaVersion": 1, "traceEvents": list(events), "traceName": "x"})


def busy(path):
    facts = trace_facts(path)
    return facts.devices[0].totals.busy_ns, facts.limits


@pytest.mark.parametrize("packed", [False, True])
def test_a_cut_keeps_the_whole_events_and_says_so(tmp_path, packed):
    text = document(*(event(float(at)) for at in range(0, 3000, 2))).encode()
    if packed:
        data = gzip.compress(text)
        path = write(tmp_path, data[: len(data) * 2 // 3], "t.json.gz")
    else:
        path = write(tmp_path, text[: len(text) * 2 // 3])
    found, limits = busy(path)
    assert 0 < found < 1_500_000
    assert found % 1000 == 0
    assert len([limit for limit in limits if "cut off" in limit]) == 1


def test_a_cut_at_every_byte_loses_only_what_is_not_whole(tmp_path):
    text = document(event(1.0), event(5.0), event(9.0)).encode()
    first = text.index(b"[") + 1
    ends = [first + len(json.dumps(event(1.0)))]
    ends.append(ends[0] + 2 + len(json.dumps(event(5.0))))
    ends.append(ends[1] + 2 + len(json.dumps(event(9.0))))
    for cut in range(len(text)):
        path = write(tmp_path, text[:cut])
        whole = sum(end <= cut for end in ends)
        if whole == 0:
            with pytest.raises(UsageError):
                trace_facts(path)
        else:
            assert busy(path)[0] == whole * 1000


def test_string_numbers_nan_huge_and_missing_fields(tmp_path):
    raw = [
        json.dumps(event(1.0) | {"ts": "10.5", "dur": "2.25"}),
        json.dumps(event(20.0, args={"device": "0", "stream": "stream 7", "correlation": "12"})),
        json.dumps(event(30.0, args=None)),
        '{"ph": "X", "cat": "kernel", "name": "no time"}',
        '{"ph": "X", "cat": "kernel", "name": "huge", "ts": 1' + "0" * 30 + ', "dur": 1, "pid": 0}',
        '{"ph": "X", "cat": "kernel", "name": "nan", "ts": NaN, "dur": 1, "pid": 0}',
        '{"ph": "X", "cat": "kernel", "name": "inf", "ts": 1, "dur": Infinity, "pid": 0}',
        '{"ph": "X", "cat": "kernel", "name": "digits", "ts": ' + "9" * 20000 + ', "dur": 1, "pid": 0}',
        '{"cat": 5, "ph": null, "name": ["x"]}',
        '7, "text", null, [1, 2]',
    ]
    path = write(tmp_path, '{"traceEvents": [' + ", ".join(raw) + "]}")
    found, limits = busy(path)
    assert found == 2250 + 1000 + 1000
    assert any("without a usable time" in limit for limit in limits)
    assert any("broken" in limit for limit in limits)


def test_control_characters_bad_utf8_and_a_byte_order_mark(tmp_path):
    text = document(event(1.0), event(5.0, name="a\u0001b"), event(9.0)).encode().replace(b"\\u0001", b"\x01\xff")
    timeline = read(write(tmp_path, b"\xef\xbb\xbf" + text))
    assert timeline.device.start.tolist() == [1000, 5000, 9000]
    assert timeline.limits == ()


def test_one_broken_event_costs_only_itself(tmp_path):
    events = [json.dumps(event(float(at))) for at in range(0, 20, 2)]
    events[4] = events[4].replace('"dur"', '"dur', 1)
    path = write(tmp_path, '{"traceEvents": [' + ",\n".join(events) + "]}")
    found, limits = busy(path)
    assert found == 9000
    assert limits == ["1 broken event was left out"]


def test_nested_objects_that_look_like_a_cut(tmp_path, monkeypatch):
    monkeypatch.setattr("underfed.trace.split.CHUNK", 64)
    nested = {"device": 0, "stream": 7, "list": [{"ph": "X", "cat": "kernel", "ts": 1}, {"name": "y"}] * 20}
    path = write(tmp_path, document(*(event(float(at), args=nested) for at in range(0, 100, 2))))
    found, limits = busy(path)
    assert found == 50_000
    assert limits == []


def test_fractions_that_a_double_cannot_hold(tmp_path):
    base = 1_606_910_596_297_023
    raw = [json.dumps(event(1.0)).replace('"ts": 1.0', f'"ts": {base}.{part}') for part in ("001", "123", "999")]
    timeline = read(write(tmp_path, '{"traceEvents": [' + ",".join(raw) + "]}"))
    assert timeline.device.start.tolist() == [base * 1000 + 1, base * 1000 + 123, base * 1000 + 999]


def test_deep_nesting_and_a_giant_event_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("underfed.trace.split.CHUNK", 1 << 16)
    monkeypatch.setattr("underfed.trace.split.EVENT_MOST", 1 << 18)
    deep = '{"ph": "X", "cat": "kernel", "args": ' + "[" * 100_000 + "]" * 100_000 + "}"
    giant = json.dumps(event(3.0, name="x" * 2_000_000))
    raw = [json.dumps(event(1.0)), deep, json.dumps(event(5.0)), giant, json.dumps(event(9.0))]
    found, limits = busy(write(tmp_path, '{"traceEvents": [' + ",".join(raw) + "]}"))
    assert found in (3000, 4000)
    assert any("broken" in limit for limit in limits)


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"PK\x03\x04rest", "zip"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
        (b"SQLite format 3\x00" + b"\0" * 100, "SQLite"),
        (b"\x80\x04\x95rest", "pickle"),
        (b"<!doctype html><p>", "web page"),
        (b"\x0a\x0c/host:CPU\x12", "XPlane"),
        (b"step,ms\n1,2\n", "not JSON"),
        (b"\x00\x01\x02" * 50, "binary"),
        (b'{"rocprofiler-sdk-tool": [{"a": 1}]}', "rocprofv3"),
        (b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1}]}', "execution trace"),
        (b'{"resourceSpans": []}', "OpenTelemetry"),
        (b'{"a": 1}', "no traceEvents"),
        (b'{"traceEvents": 5}', "no traceEvents"),
        (b'{"a": 1', "no traceEvents"),
        (b'{"traceEvents": [', "no whole event"),
        (b"\x1f\x8b\x08\x00garbage that is no deflate", "damaged gzip"),
    ],
)
def test_other_formats_are_named_in_one_line(tmp_path, data, word):
    path = write(tmp_path, data, "some.dat")
    with pytest.raises(UsageError) as caught:
        trace_facts(path)
    text = str(caught.value)
    assert word in text
    assert str(path) in text
    assert "\n" not in text


def test_names_of_files_are_escaped_and_missing_ones_said(tmp_path):
    with pytest.raises(UsageError) as caught:
        trace_facts(tmp_path / "a\x1b[31m\nb.json")
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="cannot read"):
        trace_facts(tmp_path)


def test_foreign_files_of_the_shared_collection():
    if not SHARED.is_dir():
        pytest.skip(f"no shared traces beside the repository ({SHARED})")
    for name, word in (("tracelens/mi300__jax_conv_minimal_08__tw003.xplane.pb", "XPlane"), ("INDEX.md", "not JSON")):
        with pytest.raises(UsageError, match=word):
            trace_facts(SHARED / "traces" / name)
