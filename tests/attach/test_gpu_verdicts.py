"""The verdict on a GPU run from the order of its stacks: start, copies, launches. Readings are those of a real H200."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from test_gpu_readings import seen as card

from underfed.diagnose.live_findings import findings_of
from underfed.diagnose.live_roles import Member
from underfed.diagnose.live_step import on_gpu
from underfed.diagnose.live_sum import Sums, _rank, use_of
from underfed.diagnosis import Finding
from underfed.observe.host.tree import process_tree
from underfed.observe.live import proc
from underfed.observe.live.stacks import Frame, Sampling, Stack, ThreadStacks
from underfed.observe.live.target import choose
from underfed.observe.live.window import Life, Seen, watch

SCRIPT = "/home/me/train.py"
LINES = {
    "copy": (10, "x, y = x.to(DEV, non_blocking=nb), y.to(DEV, non_blocking=nb)"),
    "backward": (11, "loss.backward()"),
    "wait": (9, "for x, y in loader:"),
    "forward": (12, "loss = F.cross_entropy(model(x), y)"),
}
SECONDS = 10.0


def stack(part: str) -> Stack:
    line, _ = LINES[part]
    user = Frame("main", SCRIPT, line)
    inner = {
        "backward": (Frame("backward", "/x/site-packages/torch/autograd/graph.py", 869),),
        "forward": (Frame("forward", "/x/site-packages/torch/nn/modules/linear.py", 100),),
        "wait": (Frame("_next_data", "/x/site-packages/torch/utils/data/dataloader.py", 1200),),
    }
    return (*inner.get(part, ()), user)


@pytest.fixture(scope="module")
def window() -> Iterator[Seen]:
    """A real look at a real process, for all that is not its stacks."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield watch(choose(str(child.pid), None), 0.3)
        child.communicate(b"\n")


def whole_life(pid: int) -> Life:
    """A process as it is now, for first and last look. A window leaves out what this process started."""
    process, threads = process_tree(pid)[0], {thread.tid: thread for thread in proc.threads(pid)}
    return Life(process, process, 0.0, 0.0, [], None, True, threads, dict(threads))


def verdict(window: Seen, parts: list[str], label: str) -> tuple[str, str, list[Finding]]:
    samples = [stack(part) for part in parts]
    thread = ThreadStacks(os.getpid(), os.getpid(), "MainThread", samples, 0)
    sources = {(SCRIPT, line): text for line, text in LINES.values()}
    seen = dataclasses.replace(
        window, seconds=SECONDS, sources=sources, sampling=Sampling([thread], 100, 0.0, 0, None), holding=None
    )
    life = whole_life(os.getpid())
    member = Member(life, "rank", training=thread)
    rank = _rank(member, seen, [], 0)
    found = Sums(seen, [member], [rank], use_of(life, seen), None, None, {}, 0)
    decision = on_gpu(found, rank, card(label))
    return decision.bound, decision.text, findings_of(found, decision)


def test_a_run_that_still_starts_is_no_launch_bound_run(window: Seen) -> None:
    """As seen on an H200: the first backward loads its kernels for many seconds, and the GPU idles."""
    bound, text, findings = verdict(window, ["forward"] * 100 + ["backward"] * 760 + ["forward"] * 140, "workers_zero")
    assert (bound, findings) == ("unknown", [])
    assert f"{SCRIPT}:11" in text or "train.py:11" in text
    assert "still starts" in text


def test_one_odd_sample_does_not_hide_it(window: Seen) -> None:
    parts = (["backward"] * 99 + ["wait"]) * 8 + ["forward"] * 200
    assert verdict(window, parts, "workers_zero")[0] == "unknown"


def test_a_loop_that_comes_round_launches(window: Seen) -> None:
    bound, text, _ = verdict(window, (["forward"] * 3 + ["backward"] * 7) * 100, "tiny_ops")
    assert bound == "host"
    assert "launches work" in text


def test_waits_of_many_seconds_for_a_batch_are_waits_for_data(window: Seen) -> None:
    assert verdict(window, ["wait"] * 800 + ["backward"] * 200, "workers_zero")[0] == "data"


def test_copies_that_are_waited_for_are_named(window: Seen) -> None:
    bound, text, findings = verdict(window, (["copy"] * 6 + ["forward"] * 2 + ["backward"] * 2) * 100, "pageable")
    assert (bound, [found.rule for found in findings]) == ("data", ["T6"])
    assert "copies to the GPU for 60 %" in text
    assert findings[0].where is not None and findings[0].where.endswith("train.py:10")
    gain = findings[0].gain
    assert gain is not None and gain.at_most >= 1 / (1 - 0.6)


def test_a_full_gpu_is_compute_bound_wherever_the_thread_stands(window: Seen) -> None:
    for parts in (["copy"] * 1000, ["backward"] * 1000):
        assert verdict(window, parts, "fp32")[0] == "compute"
