"""What a trace gives away about the program behind it, on traces whose making is known, and on their healthy twins."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clues_help import Writer

from underfed.timeline.clues import Clues
from underfed.trace import trace_facts
from underfed.trace.meaning import diagnosis_of

STEPS = 4
NODE = "autograd::engine::evaluate_function: AddmmBackward0"


def kernels(w: Writer, name: str, length: float, count: int = 1) -> Any:
    def run() -> None:
        for _ in range(count):
            w.launch(name, length)

    return run


def forward(w: Writer, length: float = 300.0) -> Any:
    return partial(w.op, "aten::linear", partial(w.op, "aten::addmm", kernels(w, "nvjet_hsh_gemm", length)))


def node(w: Writer, *inner: Any, length: float = 300.0) -> Any:
    own = partial(w.op, "aten::mm", kernels(w, "nvjet_hsh_gemm", length))
    return partial(w.op, NODE, partial(w.op, "AddmmBackward0", *inner, own))


def optimizer(w: Writer, count: int = 3, name: str = "multi_tensor_apply_kernel<FusedAdam>") -> Any:
    return partial(w.op, "Optimizer.step#AdamW.step", kernels(w, name, 3.0, count), cat="user_annotation")


def clues(w: Writer, tmp_path: Path) -> Clues:
    return trace_facts(w.write(tmp_path / "t.json")).clues


def first(w: Writer, tmp_path: Path, step_ms: float) -> tuple[str, str | None]:
    """Bound and first rule."""
    found = diagnosis_of([trace_facts(w.write(tmp_path / "t.json"))], ["t.json"], step_ms)
    helping = [one.rule for one in found.findings if one.helps_now]
    return found.verdict.bound, helping[0] if helping else None


def plain(w: Writer, *more: Any, nodes: int = 6, length: float = 300.0) -> None:
    for number in range(STEPS):
        parts = [forward(w, length) for _ in range(nodes)] + [node(w, length=length) for _ in range(nodes)]
        w.step(number, *parts, *more, optimizer(w))


def test_a_plain_program_gives_nothing_away(tmp_path: Path) -> None:
    w = Writer()
    plain(w)
    found = clues(w, tmp_path)
    assert found.backward_nodes == 6 * STEPS
    assert (found.nan_checks, found.recomputed_ns, found.reading_ns, found.worker_starts) == (0, 0, 0, 0)
    assert (found.optimizer_kernels, found.optimizer_lists, found.optimizer) == (3 * STEPS, 3 * STEPS, "AdamW")
    assert found.step_reads == (0,) * STEPS


def test_forward_operators_inside_backward_are_computing_again(tmp_path: Path) -> None:
    w = Writer()
    for number in range(STEPS):
        again = [forward(w, 200.0), forward(w, 100.0)]
        w.step(number, forward(w), forward(w), node(w, *again), node(w), optimizer(w))
    assert clues(w, tmp_path).recomputed_ns == STEPS * 300_000


def test_what_is_computed_again_is_what_leaving_it_out_gains(tmp_path: Path) -> None:
    with_it, without = Writer(), Writer()
    for number in range(STEPS):
        again = [forward(with_it) for _ in range(3)]
        with_it.step(number, *[forward(with_it)] * 6, node(with_it, *again), *[node(with_it)] * 5)
        without.step(number, *[forward(without)] * 6, *[node(without)] * 6)
    slow, fast = with_it.device / 1000 / STEPS, without.device / 1000 / STEPS
    facts = trace_facts(with_it.write(tmp_path / "t.json"))
    found = diagnosis_of([facts], ["t.json"], slow * 1.02).findings[0]
    assert found.rule == "T17" and found.helps_now and found.gain is not None and found.gain.expected is not None
    assert found.gain.expected[0] <= slow / fast <= found.gain.at_most
    assert first(without, tmp_path, fast * 1.02) == ("compute", None)


@pytest.mark.parametrize(("nodes_checked", "on"), [(6, True), (0, False)])
def test_checks_for_nan_in_backward_are_anomaly_detection(tmp_path: Path, nodes_checked: int, on: bool) -> None:
    w = Writer()
    for number in range(STEPS):

        def check() -> None:
            w.op("aten::isnan", kernels(w, "compare", 2.0))
            w.op("aten::_is_any_true", kernels(w, "reduce", 2.0))
            w.op("aten::item", partial(w.read, 1))

        nodes = [
            partial(
                w.op, NODE, partial(w.op, "AddmmBackward0", kernels(w, "gemm", 20.0)), *[check] * (at < nodes_checked)
            )
            for at in range(6)
        ]
        # The program's own look at its loss is no check of a gradient.
        w.step(number, *[forward(w, 20.0)] * 6, *nodes, check, optimizer(w))
    found = clues(w, tmp_path)
    assert found.nan_checks == nodes_checked * STEPS
    assert (first(w, tmp_path, w.now / 1000 / STEPS)[1] == "T12") is on


@pytest.mark.parametrize(
    ("count", "kernel", "speaks"),
    [
        (150, "vectorized_elementwise_kernel", True),
        (150, "multi_tensor_apply_kernel", False),
        (9, "elementwise", False),
    ],
)
def test_an_optimizer_that_loops(tmp_path: Path, count: int, kernel: str, speaks: bool) -> None:
    w = Writer()
    for number in range(STEPS):
        w.step(number, *[forward(w, 9.0)] * 6, *[node(w, length=9.0)] * 6, optimizer(w, count, kernel))
    found = clues(w, tmp_path)
    assert found.optimizer_kernels == count * STEPS
    assert found.optimizer_lists == (count * STEPS if kernel.startswith("multi") else 0)
    diagnosis = diagnosis_of([trace_facts(tmp_path / "t.json")], ["t.json"], w.now / 1000 / STEPS)
    assert any(one.rule == "X11" for one in diagnosis.findings) is speaks


def test_reads_in_a_row_are_one_stretch_and_a_lone_read_is_none(tmp_path: Path) -> None:
    w = Writer()
    stretches = []
    for number in range(STEPS):

        def weights() -> None:
            begin = w.now
            for _ in range(10):
                w.read(4000)
                end = w.now
                w.op("aten::mul_", pause=20.0)
            stretches.append(end - begin)

        w.step(number, *[forward(w, 9.0)] * 6, *[node(w, length=9.0)] * 6, weights, *[forward(w, 9.0)] * 6, w.read)
    found = clues(w, tmp_path)
    assert found.reading_ns == pytest.approx(1000 * sum(stretches), rel=0.01)
    assert found.step_reads == (11,) * STEPS


def test_a_step_that_reads_far_more_and_lasts_far_longer_is_a_checkpoint(tmp_path: Path) -> None:
    w = Writer()
    for number in range(6):

        def save() -> None:
            for _ in range(60):
                w.read(1_000_000)
            w.rest(400_000.0)

        w.step(number, *[forward(w)] * 6, *[node(w)] * 6, optimizer(w), *[save] * (number == 3))
    assert clues(w, tmp_path).step_reads == (0, 0, 0, 60, 0, 0)
    assert first(w, tmp_path, w.now / 6000) == ("host", "X6")


def test_a_validation_that_reads_its_results_is_no_checkpoint(tmp_path: Path) -> None:
    w = Writer()
    for number in range(6):

        def validate() -> None:
            for _ in range(60):
                forward(w)()
                w.read()

        w.step(number, *[forward(w)] * 6, *[node(w)] * 6, optimizer(w), *[validate] * (number == 3))
    assert first(w, tmp_path, w.now / 6000)[1] != "X6"


def test_a_long_step_without_reads_is_no_checkpoint(tmp_path: Path) -> None:
    w = Writer()
    for number in range(6):
        w.step(number, *[forward(w)] * 6, *[node(w)] * 6, optimizer(w), *[partial(w.rest, 400_000.0)] * (number == 3))
    assert first(w, tmp_path, w.now / 6000)[1] != "X6"


NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@pytest.mark.parametrize(("silent", "starts"), [(100_000.0, 1), (100.0, 0)])
def test_silence_before_a_long_wait_is_the_start_of_workers(tmp_path: Path, silent: float, starts: int) -> None:
    w = Writer()
    for number in range(8):

        def batch() -> None:
            if number == 4:
                w.rest(silent)
            w.op(NEXT, pause=60_000.0 if number == 4 else 20.0, cat="user_annotation")

        w.step(number, batch, *[forward(w)] * 6, *[node(w)] * 6, optimizer(w))
    found = clues(w, tmp_path)
    assert found.worker_starts == starts
    if starts:
        assert found.worker_silence_ns == pytest.approx(1000 * silent, rel=0.01)
        assert found.worker_start_ns == pytest.approx(1000 * (silent + 120_000.0), rel=0.01)
    assert first(w, tmp_path, w.now / 8000) == ("data", "T5" if starts else "T4")


def test_workers_that_cannot_keep_up_are_named_with_what_the_trace_cannot_tell(tmp_path: Path) -> None:
    w = Writer()
    for number in range(8):
        w.step(number, partial(w.op, NEXT, pause=20_000.0, cat="user_annotation"), *[forward(w)] * 6, *[node(w)] * 6)
    found = diagnosis_of([trace_facts(w.write(tmp_path / "t.json"))], ["t.json"], w.now / 8000).findings[0]
    assert found.rule == "T4" and found.gain is not None and found.gain.expected is None
    assert found.note is not None and "T8" in found.note


@pytest.mark.parametrize("calls", [0, 4])
def test_driver_allocations_in_every_step(tmp_path: Path, calls: int) -> None:
    w = Writer()
    for number in range(STEPS):

        def allocate() -> None:
            for _ in range(calls):
                w.row("cuda_runtime", "cudaMalloc", w.now, 900.0)
                w.rest(905.0)

        w.step(number, allocate, *[forward(w, 9.0)] * 6, *[node(w, length=9.0)] * 6, optimizer(w))
    assert (first(w, tmp_path, w.now / 1000 / STEPS)[1] == "M8") is bool(calls)


def test_allocations_of_a_trace_without_steps_may_be_its_warm_up(tmp_path: Path) -> None:
    w = Writer()
    for _ in range(20):
        w.row("cuda_runtime", "cudaMalloc", w.now, 900.0)
        w.rest(905.0)
        forward(w, 9.0)()
    assert first(w, tmp_path, w.now / 1000)[1] != "M8"
