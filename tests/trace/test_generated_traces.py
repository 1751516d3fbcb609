"""Generated traces, many devices and streams, odd times and all layouts, against the sweep."""

from __future__ import annotations

import gzip
import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_oracle import device_events, sweep

from underfed.trace import trace_facts

BASES = st.sampled_from([0, 5_337_981_609_368_022, 1_606_910_596_297_023_001, 1_712_199_999_999_998_500])
NAMES = st.sampled_from(
    ["volta_sgemm_128x64_nn", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "elementwise", 'ü "\\']
)
ROWS = st.lists(
    st.tuples(
        st.integers(0, 5_000),
        st.one_of(st.integers(0, 900), st.just(0), st.integers(-50, -1)),
        st.integers(0, 2),
        st.integers(0, 4),
        st.sampled_from(["kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy"]),
        NAMES,
    ),
    min_size=1,
    max_size=60,
)


def us(ns: int) -> str:
    sign = "-" if ns < 0 else ""
    return f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def text_of(rows, base, bare, minified):
    old = minified
    events = []
    for number, (start, length, device, stream, cat, name) in enumerate(rows):
        tid = f'"stream {stream}"' if old else str(stream)
        events.append(
            f'{{"ph": "X", "cat": "{cat}", "name": {json.dumps(name)}, "pid": {device}, "tid": {tid}, '
            f'"ts": {us(base + start)}, "dur": {us(length)}, '
            f'"args": {{"device": {device}, "stream": {stream}, "correlation": {number}}}}}'
        )
        if number % 3 == 0:
            events.append(f'{{"ph": "s", "id": {number}, "pid": 0, "tid": 0, "ts": {us(base)}, "cat": "ac2g"}}')
    glue = "," if minified else ",\n  "
    listed = "[" + glue.join(events) + "]"
    return listed if bare else '{"schemaVersion": 1, "traceEvents": ' + listed + ', "traceName": "x"}'


@settings(max_examples=300, deadline=None)
@given(ROWS, BASES, st.booleans(), st.booleans(), st.sampled_from(["plain", "gzip", "members"]))
def test_generated_traces_equal_the_sweep(tmp_path_factory, rows, base, bare, minified, packing):
    text = text_of(rows, base, bare, minified).encode()
    path = tmp_path_factory.mktemp("trace") / ("t.json" if packing == "plain" else "t.json.gz")
    middle = len(text) // 2
    packed = {
        "plain": text,
        "gzip": gzip.compress(text),
        "members": gzip.compress(text[:middle]) + gzip.compress(text[middle:]),
    }
    path.write_bytes(packed[packing])
    facts = trace_facts(path)
    # The oracle's own reading of the text, so that decimal times are its own as well.
    from decimal import Decimal

    document = json.loads(text, parse_float=Decimal)
    events = document if isinstance(document, list) else document["traceEvents"]
    assert facts.events == len(events)
    for device in facts.devices:
        mine = [(start, end, kind) for number, start, end, kind in device_events(events) if number == device.id]
        extent = sweep(mine)
        found = {name.removesuffix("_ns"): value for name, value in msgspec.structs.asdict(device.totals).items()}
        # The span is that of all busy time, and a sweep counts it from the first to the last moment as well.
        assert found == extent
    backwards = sum(length < 0 for _, length, *_ in rows)
    assert any("before they start" in limit for limit in facts.limits) == (backwards > 0)
