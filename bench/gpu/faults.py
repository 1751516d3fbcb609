"""Training scripts with one planted fault each, for a GPU: `python bench/gpu/faults.py NAME before|after`.

`before` has the fault, `after` the fix. Prints one JSON line with the true step time, measured without a profiler
between two synchronizations, and the last losses bit for bit. `LABELS` says what a diagnosis of `before` has to name;
rules are written as in tests/fixtures/h200/labels.json. `quiet` runs have no fault: no alarm is right.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from frameworks import hf_trainer, lightning
from nets import Clock, adam, device, fast, images_of, labels_of, resnet, train_step, transformer


@dataclass(frozen=True)
class Label:
    """The classes that are right for the step, the rules that are right as a first answer, and steps to time."""

    bounds: tuple[str, ...]
    rules: tuple[str, ...]
    steps: int = 60
    quiet: bool = False


LABELS = {
    "changing_sizes": Label(("host", "compute"), ("X48",), 40),
    "fragments": Label(("host", "compute"), ("M8", "X12"), 60),
    "heavy_collate": Label(("data",), ("T4", "T8"), 30),
    "one_by_one_store": Label(("data",), ("T4", "U8"), 20),
    "validation": Label(("host", "compute"), ("X7",), 60),
    "log_flush": Label(("host",), ("X8", "X9"), 60),
    "many_micro_batches": Label(("host",), ("M5", "T15", "T18"), 40),
    "gpu_augment_one_by_one": Label(("host",), ("T15", "X9", "T18"), 30),
    "hf_trainer": Label(("data",), ("T4", "T8"), 30),
    "lightning": Label(("data",), ("T4", "T8"), 30),
    "cuda_graph": Label(("compute",), (), 200, quiet=True),
    "accumulate_bf16": Label(("compute",), (), 40, quiet=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=sorted(LABELS))
    parser.add_argument("variant", choices=["before", "after"])
    parser.add_argument("--steps", type=int, default=0, help="steady steps to time")
    parser.add_argument("--warm", type=int, default=10)
    args = parser.parse_args()
    if args.name == "fragments":
        # read by torch when it first allocates
        value = "expandable_segments:True" if args.variant == "after" else "expandable_segments:False"
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = value
    clock = Clock(args.warm, args.steps or LABELS[args.name].steps)
    FAULTS[args.name](args.variant == "before", clock)
    print(json.dumps({"name": args.name, "variant": args.variant, "step_ms": clock.step_ms, "losses": clock.losses}))


# ------------------------------------------------------------------------------------------------- the faults


def changing_sizes(fault: bool, clock: Clock) -> None:
    """cuDNN searches the fastest convolution anew for each new image size, and sizes keep coming."""
    import torch

    fast()
    torch.backends.cudnn.benchmark = fault
    model, at = resnet(), 0
    optimizer = adam(model)
    sizes = [160 + 4 * (n * 37 % 50) for n in range(2000)]  # fifty sizes, hardly one of them twice in a row
    y = labels_of(32)
    while True:
        x = images_of(32, sizes[at])
        at += 1
        if not clock(train_step(model, optimizer, x, y)):
            return


def fragments(fault: bool, clock: Clock) -> None:  # noqa: ARG001 - the fault is the allocator's setting, see main
    """Sequences of changing length on a nearly full card: the allocator frees its cache and asks the driver again."""
    import torch

    fast()
    torch.cuda.set_per_process_memory_fraction(0.12)
    model = transformer(layers=6)
    optimizer = adam(model)
    at = 0
    while True:
        length = 256 + 61 * (at * 29 % 31)
        at += 1
        tokens = torch.randint(0, 16000, (8, length), device=device())
        if not clock(train_step(model, optimizer, tokens, tokens)):
            return


class Samples:
    """Token lists of uneven length, made from their number."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> list[int]:
        return [(index * 7919 + k * k) % 16000 for k in range(200 + index % 57)]


def _pad_slowly(rows: list[list[int]]) -> Any:
    """Pad, and build a mask cell by cell in Python."""
    import torch

    longest = 256
    masks = [[[1 if k < len(row) and k <= q else 0 for k in range(longest)] for q in range(16)] for row in rows]
    padded = [[row[k] if k < len(row) else 0 for k in range(longest)] for row in rows]
    return torch.tensor(padded), torch.tensor(masks)


def _pad(rows: list[list[int]]) -> Any:
    import torch

    out = torch.zeros(len(rows), 256, dtype=torch.long)
    for at, row in enumerate(rows):
        out[at, : len(row)] = torch.tensor(row)
    return out, None


def _endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def heavy_collate(fault: bool, clock: Clock) -> None:
    """collate_fn pads and masks in Python loops, on two workers."""
    from torch.utils.data import DataLoader

    fast()
    loader = DataLoader(
        Samples(),  # type: ignore[arg-type]
        batch_size=64,
        num_workers=2 if fault else 12,
        collate_fn=_pad_slowly if fault else _pad,
        pin_memory=True,
        persistent_workers=True,
    )
    model = transformer(width=512, layers=4)
    optimizer = adam(model)
    for tokens, _ in _endless(loader):
        tokens = tokens.to(device(), non_blocking=True)  # noqa: PLW2901
        if not clock(train_step(model, optimizer, tokens, tokens)):
            return


class Slow:
    """One sample a request, each answered after 30 ms."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        import torch

        time.sleep(0.03)
        return torch.full((3, 224, 224), index % 255, dtype=torch.uint8), index % 1000


def one_by_one_store(fault: bool, clock: Clock) -> None:
    """A store that answers each request late, asked by four workers, one request at a time each."""
    from torch.utils.data import DataLoader

    fast()
    workers = 4 if fault else 16
    loader = DataLoader(Slow(), batch_size=16, num_workers=workers, pin_memory=True)  # type: ignore[arg-type]
    model = resnet()
    optimizer = adam(model)
    for x, y in _endless(loader):
        images = x.to(device(), non_blocking=True).float().div_(255)
        if not clock(train_step(model, optimizer, images, y.to(device(), non_blocking=True))):
            return


def validation(fault: bool, clock: Clock) -> None:
    """A validation of 40 batches after every fifth step."""
    import torch

    fast()
    model = resnet()
    optimizer = adam(model)
    x, y = images_of(32), labels_of(32)

    def evaluate() -> float:
        model.eval()
        with torch.no_grad():
            total = sum(float((model(x).argmax(1) == y).float().mean()) for _ in range(40))
        model.train()
        return total / 40

    every = 5 if fault else 1 << 30
    at = 0
    while True:
        loss = train_step(model, optimizer, x, y)
        at += 1
        if at % every == 0:
            evaluate()
        if not clock(loss):
            return


def log_flush(fault: bool, clock: Clock) -> None:
    """A log line a step, each forced to disk, with a histogram of the weights."""
    import torch

    fast()
    model = transformer(width=512, layers=4)
    optimizer = adam(model)
    tokens = torch.randint(0, 16000, (8, 256), device=device())
    with tempfile.TemporaryFile("w") as log:
        at = 0
        while True:
            loss = train_step(model, optimizer, tokens, tokens)
            at += 1
            if fault or at % 100 == 0:
                for parameter in list(model.parameters())[:12]:
                    counts = torch.histc(parameter.detach().float(), 32).cpu().tolist()
                    log.write(json.dumps(counts) + "\n")
                log.flush()
                os.fsync(log.fileno())
            if not clock(loss):
                return


def many_micro_batches(fault: bool, clock: Clock) -> None:
    """Gradients accumulated over 32 micro-batches of one sample, on a card that is empty."""
    import torch
    from torch.nn import functional

    fast()
    model = transformer(width=512, layers=6)
    optimizer = adam(model)
    pieces = 32 if fault else 1
    tokens = torch.randint(0, 16000, (32 // pieces, 128), device=device())
    while True:
        optimizer.zero_grad(set_to_none=True)
        for _ in range(pieces):
            with torch.autocast(device(), dtype=torch.bfloat16):
                out = model(tokens)
                loss = functional.cross_entropy(out.reshape(-1, out.shape[-1]).float(), tokens.reshape(-1)) / pieces
            loss.backward()
        optimizer.step()
        if not clock(loss):
            return


def gpu_augment_one_by_one(fault: bool, clock: Clock) -> None:
    """Each image of a batch is augmented by itself on the GPU: hundreds of small kernels before each step."""
    import torch

    fast()
    model = resnet()
    optimizer = adam(model)
    x, y = images_of(96), labels_of(96)
    draw = torch.Generator().manual_seed(0)

    def augment(image: torch.Tensor) -> torch.Tensor:
        if torch.rand((), generator=draw).item() < 0.5:
            image = image.flip(-1)
        gain = 1 + 0.2 * torch.rand((), generator=draw).item()
        image = (image - image.mean((-1, -2), keepdim=True)) / (image.std((-1, -2), keepdim=True) + 1e-5)
        return (image * gain).clamp(-3, 3).roll(int(8 * gain), -1)

    while True:
        images = torch.stack([augment(image) for image in x]) if fault else x * 1.1
        if not clock(train_step(model, optimizer, images.contiguous(memory_format=torch.channels_last), y)):
            return


def cuda_graph(fault: bool, clock: Clock) -> None:  # noqa: ARG001 - healthy in both variants
    """A whole training step captured once and replayed: next to no launches, and the device is full."""
    import torch

    fast()
    model = transformer(width=1024, layers=6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    tokens = torch.randint(0, 16000, (16, 512), device=device())
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            train_step(model, optimizer, tokens, tokens)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train_step(model, optimizer, tokens, tokens)
    while True:
        graph.replay()
        if not clock(loss):
            return


def accumulate_bf16(fault: bool, clock: Clock) -> None:  # noqa: ARG001 - healthy in both variants
    """Four large micro-batches a step: accumulation that costs nothing."""
    import torch
    from torch.nn import functional

    fast()
    model = transformer(width=1024, layers=6)
    optimizer = adam(model)
    tokens = torch.randint(0, 16000, (16, 512), device=device())
    while True:
        optimizer.zero_grad(set_to_none=True)
        for _ in range(4):
            with torch.autocast(device(), dtype=torch.bfloat16):
                out = model(tokens)
                loss = functional.cross_entropy(out.reshape(-1, out.shape[-1]).float(), tokens.reshape(-1)) / 4
            loss.backward()
        optimizer.step()
        if not clock(loss):
            return


FAULTS: dict[str, Callable[[bool, Clock], None]] = {
    each.__name__: each
    for each in (
        changing_sizes,
        fragments,
        heavy_collate,
        one_by_one_store,
        validation,
        log_flush,
        many_micro_batches,
        gpu_augment_one_by_one,
        hf_trainer,
        lightning,
        cuda_graph,
        accumulate_bf16,
    )
}


if __name__ == "__main__":
    sys.exit(main())
