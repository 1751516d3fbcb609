"""What watching costs a step on a GPU, in turns of one process; used by session.py.

A stretch is so many steps between two synchronizations: its wall clock is what a user pays. A round is a bare stretch,
a watched one, a bare one; its cost is the watched one less the mean of its neighbours. The same with nothing switched
on shows what the method itself gives. No traced window: it is ten steps once, marked and left out of the figures.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

#: Loops by name: width, layers, batch, length of the sequence, of a transformer trained in bf16.
LOOPS = {
    "host-bound, small": (128, 4, 4, 64),
    "device-bound, short": (512, 6, 16, 256),
    "device-bound": (1024, 8, 32, 512),
}
_STRETCH_S = 0.4
_ROUNDS = 20


def _loop(width: int, layers: int, batch: int, length: int) -> Callable[[int], float]:
    import torch
    from nets import adam, train_step, transformer
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model = transformer(width=width, layers=layers)
    optimizer = adam(model)
    data = TensorDataset(torch.randint(0, 16000, (batch * 4096, length), dtype=torch.int32))
    loader = DataLoader(data, batch_size=batch, pin_memory=True)
    state: dict[str, Any] = {"at": iter(loader)}

    def stretch(steps: int) -> float:
        """Return ms a step."""
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            try:
                (tokens,) = next(state["at"])
            except StopIteration:
                state["at"] = iter(loader)
                (tokens,) = next(state["at"])
            tokens = tokens.cuda(non_blocking=True).long()
            train_step(model, optimizer, tokens, tokens)
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - begin) / steps

    return stretch


def _interval(values: list[float]) -> tuple[float, float]:
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(1000))
    return round(medians[25], 4), round(medians[974], 4)


def turns(left: Callable[[], float]) -> Iterator[dict[str, Any]]:
    """Yield for each loop the bare step in ms and what watching, and nothing, added in ms with 95 % intervals."""
    import underfed

    for name, sizes in LOOPS.items():
        stretch = _loop(*sizes)
        stretch(20)
        step = stretch(20)
        steps = max(10, int(_STRETCH_S * 1e3 / step))
        added: dict[str, list[float]] = {"watched": [], "bare again": []}
        bare: list[float] = []
        for _ in range(_ROUNDS):
            if left() < 10:
                break
            for arm, values in added.items():
                before = stretch(steps)
                with underfed.watch(window=None) if arm == "watched" else nullcontext():
                    between = stretch(steps)
                after = stretch(steps)
                bare.append(before)
                values.append(between - (before + after) / 2)
        if not bare:
            return
        found: dict[str, Any] = {"loop": name, "step_ms": round(statistics.median(bare), 4), "rounds": len(bare) // 2}
        for arm, values in added.items():
            found[arm] = {"ms": round(statistics.median(values), 4), "interval": _interval(values)}
        yield found
