"""Gauges of a machine that was recorded with an H200, against its lines as they are; and counters that are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from underfed.live_view.draw import page
from underfed.live_view.gauges import Sample, gauges, of_line
from underfed.live_view.state import Reading, State, read

FILES = sorted((Path(__file__).parents[1] / "fixtures" / "h200").glob("*/host.jsonl"))


def lines(path: Path) -> list[dict[str, Any]]:
    # these were recorded when utilization still went by another name
    return [json.loads(line.replace('"sm_util"', '"utilization"')) for line in path.read_text().splitlines()]


@pytest.mark.skipif(not FILES, reason="no recordings of real runs here")
@pytest.mark.parametrize("path", FILES[:4], ids=lambda path: path.parent.name)
def test_a_recorded_gpu_is_shown_as_its_driver_gave_it(path: Path) -> None:
    found = lines(path)
    (box,) = [line for line in found if line["k"] == "box" and line["gpu"]]
    hosts = [line for line in found if line["k"] == "host"]
    (fixed,) = box["gpu"]["devices"]
    state, before, told = State(title="run", began=0, at=0, stepping=True), None, 0
    for line in hosts:
        sample = of_line(line, box)
        assert sample is not None
        now = {gauge.name: gauge for gauge in gauges(before, sample)}
        state = read(state, Reading(at=sample.at, gauges=tuple(now.values())))
        for device in line["gpu"] or ():
            told += 1
            busy = device["utilization"] if device["gpm"] is None else device["gpm"]["sm"]
            assert now["GPU 0"].value == pytest.approx(busy / 100)
            assert f"util {device['utilization']} %" in now["GPU 0"].text
            assert (now[" clock"].value, now[" clock"].top) == (device["sm_mhz"], fixed["max_sm_mhz"])
            assert (now[" power"].value, now[" power"].top) == (device["power_w"], fixed["limit_w"])
        if before is not None:
            # what /proc counted for the processes that are in both lines
            pairs = [
                (one, other)
                for one in hosts[hosts.index(line) - 1]["tree"]
                for other in line["tree"]
                if (one["pid"], one["start_ms"]) == (other["pid"], other["start_ms"])
            ]
            used = sum(b["utime_ms"] + b["stime_ms"] - a["utime_ms"] - a["stime_ms"] for a, b in pairs)
            passed = (line["t_ns"] - hosts[hosts.index(line) - 1]["t_ns"]) / 1e6
            assert now["CPU"].value == pytest.approx(used / passed, abs=1e-6)
        before = sample
    assert told > 0
    shown = "\n".join("".join(text for text, _ in line) for line in page(state, 80, 24, ascii_only=True))
    for wanted in ("GPU 0", "util", "MHz", " W ", f"of {box['cpu']['usable']:g} used"):
        assert wanted in shown


def test_where_every_process_is_new_the_cpu_time_is_not_known_and_no_zero() -> None:
    before = Sample(at=1.0, cpu_s={(1, 10): 5.0})
    assert gauges(before, Sample(at=2.0, cpu_s={(2, 20): 7.0})) == ()
    (cpu,) = gauges(before, Sample(at=3.0, cpu_s={(1, 10): 6.0, (2, 20): 7.0}))
    assert cpu.value == 0.5


def test_a_quota_is_shown_only_where_there_is_one_and_its_counters_go_on() -> None:
    base = {"k": "host", "t_ns": 1e9, "tree": [], "gpu": None}
    for quota, counts, wanted in (
        (2.0, ((10, 1), (20, 4)), 0.3),
        (2.0, ((10, 1), (10, 1)), None),  # no period has passed
        (2.0, ((10, 5), (20, 1)), None),  # the group was made anew
        (None, ((10, 1), (20, 4)), None),
        (2.0, ((None, None), (20, 4)), None),
    ):
        made = [
            of_line({**base, "t_ns": at * 1e9, "cpu": {"quota": quota, "nr_periods": n, "nr_throttled": t}}, None)
            for at, (n, t) in enumerate(counts, 1)
        ]
        assert made[0] is not None
        assert made[1] is not None
        found = [gauge.value for gauge in gauges(made[0], made[1]) if gauge.name == "quota"]
        assert found == ([] if wanted is None else [pytest.approx(wanted)])


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"k": "host"},
        {"k": "host", "t_ns": "x"},
        {"k": "host", "t_ns": 1, "cpu": 3, "tree": {"pid": 1}, "gpu": [None, 3, {"device": "a", "sm_mhz": True}]},
        {"k": "host", "t_ns": 1, "cpu": None, "tree": [{"pid": 1}, None], "gpu": [{"gpm": 3, "throttle": "x"}]},
    ],
)
def test_damaged_lines_give_no_gauge_and_no_error(line: dict[str, Any]) -> None:
    sample = of_line(line, {"k": "box", "cpu": 1, "gpu": {"devices": 7}})
    if sample is not None:
        assert not [gauge for gauge in gauges(Sample(at=0.0), sample) if gauge.value is not None]


def test_what_is_not_known_of_a_step_is_a_part_of_its_own() -> None:
    from underfed.diagnosis import Diagnosis, Step, Subject, Verdict, Waits
    from underfed.live_view.words import judged

    def parts(step: Step) -> dict[str, float]:
        verdict = Verdict(bound="unknown", confidence="low", text="")
        return dict(judged(Diagnosis(subject=Subject(kind="run", paths=[]), verdict=verdict, step=step), 0.0).parts)

    assert parts(Step(ms=10.0, wait_ms=Waits(data=1.0))) == pytest.approx({"data": 0.1, "not split": 0.9})
    whole = Waits(data=1.0, transfer=0.0, sync=0.0, launch=0.0, stall=0.0, comms=0.0, other=4.0)
    assert "not split" not in parts(Step(ms=10.0, device_ms=5.0, wait_ms=whole))
    assert parts(Step()) == {}
