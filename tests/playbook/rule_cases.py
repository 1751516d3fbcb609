"""Evidence in which each rule must speak, and evidence in which it must stay silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kernels_help import BF16, CONV, EFFICIENT, FLASH, MATRIX, PIECES, PLAIN, WHOLE, traced
from scenes import CPUS, FETCHES, LOADER, busy, evidence

from underfed.playbook.evidence import (
    Copy,
    EpochFacts,
    Evidence,
    GpuFacts,
    MemoryFacts,
    OperatorFacts,
    Spot,
    Sync,
    ThreadFacts,
    WorkerFacts,
)

LOOP = {"pre": 4.0, "backward": 5.0, "optimizer": 1.0}
WORK = {"pre": {"forward": 1.0}, "mid": {"optimizer": 1.0}}
MEMORY = {"peak": 8 << 30, "total": 140 << 30}


def spot(kind: str, ms: float, where: str = "train.py:50") -> Spot:
    return Spot(kind, where, "lib.py:1", ms, 50)


def stalled(kind: str, ms: float = 30.0, **more: Any) -> Evidence:
    """A GPU run with `ms` of each step behind the optimizer in one kind of work."""
    return evidence(
        {**LOOP, "post": ms}, sections={**WORK, "post": {kind: 1.0}}, device=busy(9.0), spots=(spot(kind, ms),), **more
    )


def fed(workers: int, wait: float = 80.0, *, fetch: dict[str, Any] | None = None, **loader: Any) -> Evidence:
    more: dict[str, Any] = {}
    for name in ("epochs", "cpus", "memory"):
        if name in loader:
            more[name] = loader.pop(name)
    if "workers_seen" in loader:
        more["workers"] = loader.pop("workers_seen")
    return evidence(
        {**LOOP, "data": wait},
        sections=WORK,
        device=busy(9.0),
        loader=replace(LOADER, workers=workers, **loader),
        fetches=replace(FETCHES, **(fetch or {})),
        **more,
    )


def launching(**more: Any) -> Evidence:
    return evidence({**LOOP, "pre": 40.0}, sections=WORK, device=busy(5.0), spots=(spot("forward", 40.0),), **more)


HEALTHY = evidence(
    {**LOOP, "data": 0.1},
    sections=WORK,
    device=busy(9.8),
    loader=replace(LOADER, workers=4, persistent=True),
    fetches=replace(FETCHES, wall=20.0, cpu=19.0, process_cpu=19.0, wall_median=20.0, wall_p95=22.0, span_ms=20000.0),
    torch={"threads": 8, "memory": {"peak": 120 << 30, "total": 140 << 30}, "anomaly": False},
    gpu_util=0.97,
)
FOUR_CPUS = replace(CPUS, usable=4.0, quota=4.0, limited_by="quota")
BORDER = EpochFacts(count=20, steps=5.0, start_ms=50.0, first_wait_ms=150.0)
WAITING = {"cpu": 4.0, "process_cpu": 4.0}
STORE = {"wall": 900.0, "wall_median": 900.0, "wall_p95": 950.0, **WAITING}
CROWDED = {"wall": 160.0, "cpu": 80.0, "process_cpu": 80.0, "wall_median": 160.0, "wall_p95": 180.0, "span_ms": 5000.0}
BURSTS = {"wall": 24.0, "wall_median": 10.0, "wall_p95": 120.0, "cpu": 2.0, "process_cpu": 2.0}
ADAM = {"name": "AdamW", "tensors": 300, "torch_own": True, "foreach": False, "fused": False}
PAGEABLE = Copy("h2d", False, True, "train.py:31", 30.0, 2.0, 1e8)

HELD = GpuFacts(
    devices=1,
    readings=20,
    sm_mhz=1500.0,
    max_sm_mhz=1980.0,
    held={"thermal slowdown (software)": 0.9},
    power_w=500.0,
    limit_w=700.0,
    default_limit_w=700.0,
    temp_c=88.0,
    pcie=(5, 16),
    pcie_max=(5, 16),
)
NARROW = replace(HELD, held={}, sm_mhz=1980.0, pcie=(3, 4))
SMALL = {"wall": 900.0, "wall_median": 900.0, "wall_p95": 950.0, **WAITING, "bytes_read": 32 * 40e3, "samples": 32.0}
FOUR_THREADS = {**CROWDED, "cpu": 40.0, "process_cpu": 160.0}
POOLS = WorkerFacts(seen=4, affinity=4.0, threads=9.0, loop_affinity=4.0)
ROOM = MemoryFacts(limit=64e9, used=20e9, of_group=True, growth=None, span_s=300.0, kills=0, worker=2e9)


def computing(
    kernels: dict[str, float], *, capability: int = 9, gpu: GpuFacts | None = None, spread: float = 1.05, **torch: Any
) -> Evidence:
    """A GPU-bound run whose traced window holds these kernels, in ms."""
    return evidence(
        {**LOOP, "data": 0.1},
        sections=WORK,
        device=busy(9.8),
        trace=traced(kernels),
        step_spread=spread,
        gpu=gpu,
        torch={"capability": [capability, 0], **torch},
    )


def on_cpu(own: dict[str, float], counts: dict[str, float], *, others: float = 100.0, ms: float = 20.0) -> Evidence:
    """A CPU-only run whose counted steps hold these operators, their own time in ms and their counts a step, with
    `others` cheap ones beside them.
    """
    return evidence(
        {"pre": 0.5 * ms, "backward": 0.5 * ms, "optimizer": 0.01 * ms},
        sections={"pre": {"forward": 1.0}},
        on_gpu=False,
        spots=(spot("forward", 0.5 * ms), spot("backward", 0.5 * ms)),
        operators=OperatorFacts(
            sum(counts.values()) + others, 1.2 * ms, {**own, "aten::add": 1.0}, {**counts, "aten::add": others}
        ),
    )


SCORES = {"aten::bmm": 6.0, "aten::_softmax": 4.0, "aten::_softmax_backward_data": 3.0, "aten::addmm": 3.0}
CALLS = {"aten::bmm": 12.0, "aten::_softmax": 2.0, "aten::_softmax_backward_data": 2.0, "aten::addmm": 12.0}
TINY = on_cpu({}, {}, others=15_000.0)
BROKEN = {"graph_breaks": 41, "unique_graphs": 42}
GROWING = {"peak_first": 3e6, "peak_last": 2e6}
RETRIES = {"memory_rate": {"retries": 0.2, "driver_allocs": 3.0}}

SCALED = {**ADAM, "scaled": True}
HALF = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn"
THREAD = ThreadFacts(others=0.9, training=0.4, count=1, where="train.py:12")


def sleeping(threads: ThreadFacts | None = THREAD, **more: Any) -> Evidence:
    """A run on the CPU whose training thread sleeps for much of a step of 10 ms that has no wait in it."""
    return evidence(LOOP, sections=WORK, on_gpu=False, threads=threads, spots=(spot("forward", 4.0),), **more)


SPEAKS: dict[str, Evidence] = {
    "X21": sleeping(),
    "X48": computing({CONV: 6.0, PLAIN: 3.0}, cudnn_benchmark=True, spread=4.0),
    "X22": sleeping(None, torch={"denormals": 0.2}),
    "P5": computing({HALF: 6.0, PLAIN: 3.0}, optimizers=[{**ADAM, "scaled": False}]),
    "P10": replace(computing({HALF: 9.0}, optimizers=[SCALED]), skipped=0.2),
    "M5": launching(counts={"fetches": 16.0}, torch={"memory": MEMORY}),
    "M18": launching(torch={"memory": MEMORY, "memory_rate": GROWING}),
    "P3": computing({BF16: 6.0, PLAIN: 4.0}, capability=7),
    "P19": computing({MATRIX: 9.0}, deterministic=True),
    "T10": computing({CONV: 6.0, PLAIN: 3.0}, cudnn_benchmark=False),
    "U9": fed(4, memory=replace(ROOM, used=62e9)),
    "U23": computing({MATRIX: 9.0}, gpu=HELD),
    "U25": fed(2, 430.0, fetch=SMALL),
    "X18": fed(4, 80.0, fetch=FOUR_THREADS, cpus=FOUR_CPUS, workers_seen=POOLS),
    "X14": evidence(LOOP, sections=WORK, on_gpu=False, gpu=HELD, torch={"cuda_build": ""}),
    "X15": fed(4, workers_seen=replace(POOLS, affinity=1.0)),
    "X16": evidence({**LOOP, "h2d": 30.0}, sections=WORK, device=busy(34.0, copy=25.0), gpu=NARROW),
    "X17": computing({EFFICIENT: 4.0, MATRIX: 5.0}),
    "X19": computing({PIECES: 4.0, MATRIX: 5.0}),
    "X20": launching(torch={"dynamo": {**BROKEN, "reasons": ["Tensor.item()"]}}),
    "X56": launching(trace=traced({MATRIX: 2.0}, devices=2, ranges=("DataParallel.forward",))),
    "M8": launching(torch=RETRIES),
    "T1": evidence(LOOP, sections=WORK),
    "T2": launching(gpu_util=0.95),
    "T3": launching(torch={"threads": 64}, cpus=replace(FOUR_CPUS, throttled_share=0.4)),
    "T4": fed(0),
    "T5": fed(4, 40.0, epochs=BORDER),
    "T6": evidence({**LOOP, "h2d": 30.0}, sections=WORK, device=busy(34.0, copy=25.0), copies=(PAGEABLE,)),
    "T7": fed(4, 8.0, fetch=BURSTS),
    "T8": fed(4, 80.0, fetch=CROWDED, cpus=FOUR_CPUS),
    "T12": launching(torch={"anomaly": True}),
    "T14": on_cpu(SCORES, CALLS),
    "T15": launching(),
    "T16": stalled("compile", recompiles=6.0, torch={"dynamo": {"reasons": ["shape changes"]}}),
    "T18": launching(torch={"memory": MEMORY}),
    "U8": fed(2, 430.0, fetch=STORE),
    "X1": fed(16, 80.0, fetch=CROWDED, cpus=FOUR_CPUS),
    "X2": fed(4, 80.0, fetch={"by_worker": {0: 198, 1: 1, 2: 1}}),
    "X3": evidence(
        {**LOOP, "pre": 44.0},
        sections={"pre": {"data": 40 / 44, "forward": 4 / 44}},
        device=busy(9.0),
        spots=(spot("data", 40.0),),
    ),
    "X5": evidence(
        {**LOOP, "sync": 20.0},
        sections=WORK,
        device=busy(12.0, sync_share=0.9),
        syncs=(Sync("item", "train.py:41", 20.0, 40.0),),
    ),
    "X6": stalled("checkpoint"),
    "X7": stalled("eval"),
    "X8": stalled("logging"),
    "X9": stalled("stall"),
    "X10": evidence({**LOOP, "gc": 20.0}, sections=WORK, device=busy(9.0), counts={"collections": 1.0}),
    "X11": evidence({**LOOP, "optimizer": 30.0}, sections=WORK, device=busy(6.0), torch={"optimizers": [ADAM]}),
    "X12": evidence(
        {**LOOP, "cache": 10.0}, sections=WORK, device=busy(9.0), syncs=(Sync("empty_cache", "train.py:60", 10.0, 1.0),)
    ),
}
#: Rules that need a traced window or what the agent notes of a model; recordings of a real GPU speak for them.
FROM_RECORDINGS = {"T9", "T11", "T13", "T17"}
#: Rules that need the traces of several ranks; tests/read speaks for them.
FROM_RANKS = {"T23", "X13"}
WITH_PLACE = {"T4", "T5", "T6", "T7", "T8", "T16", "U8", "X1", "X2", "X3", "X5", "X6", "X7", "X8", "X9", "X12"}

QUEUED = {"wall": 68.0, "cpu": 16.0, "process_cpu": 16.0, "wall_median": 68.0, "wall_p95": 75.0, "queued": 50.0}
CROWDED_BY_OTHERS = fed(8, 12.0, fetch={**QUEUED, "span_ms": 1e5}, cpus=replace(CPUS, usable=2.0))

SILENT: list[tuple[str, str, Evidence]] = [
    ("X48", "the search is off", computing({CONV: 6.0}, cudnn_benchmark=False, spread=4.0)),
    ("X48", "even steps", computing({CONV: 6.0}, cudnn_benchmark=True)),
    ("X48", "few convolutions", computing({CONV: 0.2, MATRIX: 9.0}, cudnn_benchmark=True, spread=4.0)),
    ("X48", "input is what varies", replace(SPEAKS["X48"], step=SPEAKS["T4"].step)),
    ("X48", "torch.compile works", replace(SPEAKS["X48"], recompiles=3.0)),
    ("X21", "no other threads", sleeping(None)),
    ("X21", "they use little", sleeping(replace(THREAD, others=0.1))),
    ("X21", "the training thread computes", sleeping(replace(THREAD, training=0.98))),
    ("X21", "it queues for CPUs", sleeping(cpu_wait=1.5)),
    ("X21", "it waits for input", replace(SPEAKS["T4"], threads=replace(THREAD, training=0.05))),
    ("X21", "it waits in a line of its own", replace(sleeping(), spots=(spot("stall", 6.0),))),
    ("X21", "the backward pass of a GPU runs on a thread of torch", launching(threads=replace(THREAD, training=0.91))),
    ("X22", "none", sleeping(None, torch={"denormals": 0.0})),
    ("X22", "not looked at", sleeping(None, torch={"denormals": None})),
    ("X22", "a GPU", launching(torch={"denormals": 0.5})),
    ("P5", "a scaler", computing({HALF: 6.0}, optimizers=[SCALED])),
    ("P5", "nobody knows who called the step", computing({HALF: 6.0}, optimizers=[ADAM])),
    ("P5", "an optimizer with a scaler of its own", computing({HALF: 6.0}, optimizers=[{**ADAM, "torch_own": False}])),
    ("P5", "bf16", computing({PIECES: 4.0, BF16: 5.0}, optimizers=[{**ADAM, "scaled": False}])),
    ("P5", "32 bits", computing({PLAIN: 4.0}, optimizers=[{**ADAM, "scaled": False}])),
    ("P10", "no scaler", replace(computing({HALF: 9.0}, optimizers=[ADAM]), skipped=0.2)),
    ("P10", "one in a hundred", replace(computing({HALF: 9.0}, optimizers=[SCALED]), skipped=0.01)),
    ("P10", "not known", computing({HALF: 9.0}, optimizers=[SCALED])),
    ("M5", "no accumulation", SPEAKS["T18"]),
    ("M5", "memory is in use", replace(SPEAKS["M5"], torch={"memory": {"peak": 100 << 30, "total": 140 << 30}})),
    ("M5", "input is the wait", replace(SPEAKS["T4"], counts={"fetches": 16.0}, torch={"memory": MEMORY})),
    (
        "M18",
        "it grew at first",
        launching(torch={"memory": MEMORY, "memory_rate": {"peak_first": 3e6, "peak_last": 0}}),
    ),
    ("M18", "it shrinks", launching(torch={"memory": MEMORY, "memory_rate": {"peak_first": -3e6, "peak_last": -3e6}})),
    ("P3", "the card has bf16 units", computing({BF16: 6.0, PLAIN: 4.0}, capability=8)),
    ("P3", "32 bits", computing({PLAIN: 4.0}, capability=7)),
    ("P3", "the card is not known", computing({BF16: 6.0}, capability=0)),
    ("P19", "it is off", computing({MATRIX: 9.0}, deterministic=False)),
    ("T10", "the search is on", computing({CONV: 6.0}, cudnn_benchmark=True)),
    ("T10", "the setting is not known", computing({CONV: 6.0})),
    ("T10", "no convolutions", computing({MATRIX: 6.0}, cudnn_benchmark=False)),
    ("T10", "shapes change", computing({CONV: 6.0}, cudnn_benchmark=False, spread=2.0)),
    ("T10", "determinism is asked for", computing({CONV: 6.0}, cudnn_benchmark=False, deterministic=True)),
    ("U9", "there is room", fed(4, memory=ROOM)),
    ("U9", "others fill a machine without a limit", fed(4, memory=replace(ROOM, used=62e9, of_group=False))),
    ("U9", "growth that takes days", fed(4, memory=replace(ROOM, growth=1e6))),
    ("U23", "the clock is at its maximum", computing({MATRIX: 9.0}, gpu=replace(HELD, sm_mhz=1965.0))),
    ("U23", "a full power budget", computing({MATRIX: 9.0}, gpu=replace(HELD, held={"power cap": 1.0}))),
    ("U23", "a moment's heat", computing({MATRIX: 9.0}, gpu=replace(HELD, held={"hardware slowdown": 0.1}))),
    ("U23", "too few readings", computing({MATRIX: 9.0}, gpu=replace(HELD, readings=1))),
    ("U25", "large samples", fed(2, 430.0, fetch={**SMALL, "bytes_read": 32 * 4e6})),
    ("U25", "bytes come through sockets", fed(2, 430.0, fetch={**SMALL, "bytes_read": 0.0})),
    ("U25", "fetches compute", fed(4, 80.0, fetch={**CROWDED, "bytes_read": 32 * 40e3}, cpus=FOUR_CPUS)),
    ("X18", "one thread each", SPEAKS["T8"]),
    ("X18", "CPUs are free", fed(4, 80.0, fetch={**FOUR_THREADS, "span_ms": 1e5})),
    ("X14", "the GPU is used", launching(gpu=HELD)),
    ("X14", "there is none", evidence(LOOP, sections=WORK, on_gpu=False)),
    ("X15", "workers have all CPUs", fed(4, workers_seen=replace(POOLS, affinity=8.0))),
    ("X15", "one worker on one CPU", fed(1, workers_seen=replace(POOLS, affinity=1.0))),
    (
        "X15",
        "the whole run is confined",
        fed(4, cpus=replace(CPUS, usable=1.0, affinity=1.0), workers_seen=replace(POOLS, affinity=1.0)),
    ),
    ("X16", "a full link", replace(SPEAKS["X16"], gpu=HELD)),
    ("X16", "copies are small", launching(gpu=NARROW)),
    ("X17", "flash runs", computing({FLASH: 4.0, EFFICIENT: 2.0, MATRIX: 5.0})),
    ("X17", "attention is a small part", computing({EFFICIENT: 0.5, MATRIX: 9.0})),
    ("X17", "an older card", computing({EFFICIENT: 4.0, MATRIX: 5.0}, capability=7)),
    ("X19", "aligned kernels", computing(dict.fromkeys(WHOLE, 4.0))),
    ("X19", "a small part", computing({PIECES: 0.5, MATRIX: 9.0})),
    ("X20", "nothing is compiled", launching()),
    ("X20", "a break or two", launching(torch={"dynamo": {**BROKEN, "graph_breaks": 2}})),
    ("X56", "one GPU", launching(trace=traced({MATRIX: 2.0}, ranges=("DataParallel.forward",)))),
    (
        "X56",
        "DistributedDataParallel",
        launching(trace=traced({MATRIX: 2.0}, devices=2, ranges=("DistributedDataParallel.forward",))),
    ),
    ("M8", "the cache is enough", launching(torch={"memory_rate": {"retries": 0.0, "driver_allocs": 0.02}})),
    ("M8", "the cache is emptied by a call that was seen", replace(SPEAKS["X12"], torch=RETRIES)),
    ("M8", "a CPU-only run", replace(SPEAKS["M8"], on_gpu=False)),
    ("T1", "the bound is known", SPEAKS["T4"]),
    ("T2", "the two figures agree", launching(gpu_util=0.2)),
    ("T3", "threads fit", launching(torch={"threads": 4}, cpus=FOUR_CPUS)),
    ("T4", "the wait sits at epoch borders", SPEAKS["T5"]),
    ("T4", "CPUs are full", SPEAKS["T8"]),
    ("T4", "more workers than CPUs", SPEAKS["X1"]),
    ("T4", "one worker feeds all", SPEAKS["X2"]),
    ("T4", "no wait", fed(0, 0.1)),
    ("T4", "workers queue for CPUs that others hold", CROWDED_BY_OTHERS),
    ("U8", "workers queue for CPUs that others hold", CROWDED_BY_OTHERS),
    ("T5", "workers are kept", fed(4, 40.0, epochs=BORDER, persistent=True)),
    ("T5", "no workers", fed(0, 40.0, epochs=BORDER)),
    ("T5", "epochs are long", fed(4, 0.4, epochs=replace(BORDER, steps=1000.0))),
    ("T6", "pinned and not blocking", replace(SPEAKS["T6"], copies=(replace(PAGEABLE, pinned=True, blocking=False),))),
    ("T6", "no GPU", replace(SPEAKS["T6"], on_gpu=False)),
    ("T7", "fetches are even", fed(4, 8.0, fetch={**BURSTS, "wall": 10.0, "wall_p95": 11.0})),
    ("T7", "too slow on average", fed(4, 80.0, fetch={**BURSTS, "wall": 400.0})),
    ("T8", "fetches wait", SPEAKS["U8"]),
    ("T8", "CPUs are free", fed(1, 80.0)),
    (
        "T8",
        "the store is waited for, and a busy CPU for a moment",
        fed(
            1, 26.0, fetch={"wall": 43.0, "cpu": 3.0, "process_cpu": 3.0, "queued": 6.0}, cpus=replace(CPUS, usable=2.0)
        ),
    ),
    ("T12", "nothing is on", launching(torch={"anomaly": False, "profiler": False, "settrace": None})),
    ("T15", "input is the wait", SPEAKS["T4"]),
    ("T14", "nothing was counted", replace(SPEAKS["T14"], operators=None)),
    ("T14", "softmax is a small part", on_cpu({**SCORES, "aten::addmm": 300.0}, CALLS)),
    ("T14", "softmax of a classifier's loss", on_cpu({"aten::_softmax": 4.0}, {"aten::_softmax": 2.0})),
    (
        "T14",
        "fused attention runs",
        on_cpu(SCORES, {**CALLS, "aten::_scaled_dot_product_flash_attention_for_cpu": 2.0}),
    ),
    ("T15", "a CPU-only run", evidence(LOOP, sections=WORK, on_gpu=False)),
    ("T15", "a few long operators", on_cpu(SCORES, CALLS)),
    ("T15", "many operators that compute", on_cpu({}, {}, others=15_000.0, ms=300.0)),
    ("T15", "many short ones in the optimizer", replace(TINY, spots=(spot("optimizer", 20.0),))),
    ("T15", "input is the wait, without a GPU", replace(TINY, bound="data")),
    ("T16", "compiled in the warm-up", launching(recompiles=0.0)),
    ("T18", "memory is in use", launching(torch={"memory": {"peak": 130 << 30, "total": 140 << 30}})),
    ("U8", "fetches compute", SPEAKS["T8"]),
    ("X1", "fetches wait", fed(16, 80.0, fetch=WAITING, cpus=FOUR_CPUS)),
    ("X1", "as many as CPUs", SPEAKS["T8"]),
    ("X2", "all workers deliver", fed(4, 80.0, fetch={"by_worker": {0: 50, 1: 50, 2: 50, 3: 50}})),
    ("X3", "the wait is in a DataLoader", SPEAKS["T4"]),
    ("X5", "no sync", launching()),
    ("X5", "a CPU-only run", replace(SPEAKS["X5"], on_gpu=False)),
    ("X6", "other work", SPEAKS["X9"]),
    ("X7", "a checkpoint", SPEAKS["X6"]),
    ("X8", "a checkpoint", SPEAKS["X6"]),
    ("X9", "a checkpoint", SPEAKS["X6"]),
    ("X10", "rare", evidence({**LOOP, "gc": 0.01}, sections=WORK, device=busy(9.0))),
    ("X11", "fused", replace(SPEAKS["X11"], torch={"optimizers": [{**ADAM, "fused": True}]})),
    ("X11", "few tensors", replace(SPEAKS["X11"], torch={"optimizers": [{**ADAM, "tensors": 4}]})),
    ("X12", "another sync", SPEAKS["X5"]),
]
