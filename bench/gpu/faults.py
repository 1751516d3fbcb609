"""Training scripts with one planted fault each, for a GPU: `python bench/gpu/faults.py NAME before|after`.

`before` has the fault, `after` the fix. Prints one JSON line with the true step time, measured without a profiler
between two synchronizations, and the last losses bit for bit. `LABELS` says what a diagnosis of `before` has to name;
rules are written as in tests/fixtures/h200/labels.json. `quiet` runs have no fault: no alarm is right.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


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
    globals()[args.name](args.variant == "before", clock)
    print(json.dumps({"name": args.name, "variant": args.variant, "step_ms": clock.step_ms, "losses": clock.losses}))


def device() -> str:
    """Return what to train on; a CPU serves to see that a script runs, `fragments` and `cuda_graph` apart."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


class Clock:
    """Times the steps between `warm` and `warm + steps`; `clock(loss)` ends a step and says whether to go on."""

    def __init__(self, warm: int, steps: int) -> None:
        self.warm, self.steps, self.done = warm, steps, 0
        self.began, self.step_ms = 0.0, 0.0
        self.kept: list[Any] = []

    def __call__(self, loss: Any = None) -> bool:
        import torch

        self.done += 1
        if loss is not None and self.done > self.warm + self.steps - 5:
            self.kept.append(loss.detach())
        if self.done in (self.warm, self.warm + self.steps):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if self.done == self.warm:
                self.began = time.perf_counter()
            else:
                self.step_ms = 1e3 * (time.perf_counter() - self.began) / self.steps
        return self.done < self.warm + self.steps

    @property
    def losses(self) -> list[str]:
        return [struct.pack("<f", float(loss)).hex() for loss in self.kept]


# ------------------------------------------------------------------------------------------------- models and loops


def _fast() -> None:
    import torch

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


def _transformer(width: int = 1024, layers: int = 8, vocab: int = 16000) -> Any:
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True, norm_first=True)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(vocab, width)
            self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.head = nn.Linear(width, vocab)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(self.embed(tokens)))

    return Model().to(device())


def _resnet() -> Any:
    """A ResNet of basic blocks, 34 layers deep, in channels_last."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList(nn.BatchNorm2d(outer) for _ in range(2))
            self.past = nn.Conv2d(inner, outer, 1, stride) if inner != outer else nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = functional.relu(self.norms[0](self.first(x)))
            return functional.relu(self.norms[1](self.second(y)) + self.past(x))

    blocks, inner = [], 64
    for outer, depth in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for at in range(depth):
            blocks.append(Block(inner, outer, 2 if at == 0 and outer != 64 else 1))
            inner = outer
    stem = (nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    net = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return net.to(device()).to(memory_format=torch.channels_last)


def _step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    import torch
    from torch.nn import functional

    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device(), dtype=torch.bfloat16):
        out = model(x)
        loss = functional.cross_entropy(out.reshape(-1, out.shape[-1]).float(), y.reshape(-1))
    loss.backward()
    optimizer.step()
    return loss


def _adam(model: Any) -> Any:
    import torch

    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def _images(batch: int, size: int = 224) -> Any:
    import torch

    return torch.randn(batch, 3, size, size, device=device()).to(memory_format=torch.channels_last)


def _labels(batch: int) -> Any:
    import torch

    return torch.randint(0, 1000, (batch,), device=device())


# ------------------------------------------------------------------------------------------------- the faults


def changing_sizes(fault: bool, clock: Clock) -> None:
    """cuDNN searches the fastest convolution anew for each new image size, and sizes keep coming."""
    import torch

    _fast()
    torch.backends.cudnn.benchmark = fault
    model, at = _resnet(), 0
    optimizer = _adam(model)
    sizes = [160 + 4 * (n * 37 % 50) for n in range(2000)]  # fifty sizes, hardly one of them twice in a row
    y = _labels(32)
    while True:
        x = _images(32, sizes[at])
        at += 1
        if not clock(_step(model, optimizer, x, y)):
            return


def fragments(fault: bool, clock: Clock) -> None:  # noqa: ARG001 - the fault is the allocator's setting, see main
    """Sequences of changing length on a nearly full card: the allocator frees its cache and asks the driver again."""
    import torch

    _fast()
    torch.cuda.set_per_process_memory_fraction(0.12)
    model = _transformer(layers=6)
    optimizer = _adam(model)
    at = 0
    while True:
        length = 256 + 61 * (at * 29 % 31)
        at += 1
        tokens = torch.randint(0, 16000, (8, length), device=device())
        if not clock(_step(model, optimizer, tokens, tokens)):
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

    _fast()
    loader = DataLoader(
        Samples(),  # type: ignore[arg-type]
        batch_size=64,
        num_workers=2 if fault else 12,
        collate_fn=_pad_slowly if fault else _pad,
        pin_memory=True,
        persistent_workers=True,
    )
    model = _transformer(width=512, layers=4)
    optimizer = _adam(model)
    for tokens, _ in _endless(loader):
        tokens = tokens.to(device(), non_blocking=True)  # noqa: PLW2901
        if not clock(_step(model, optimizer, tokens, tokens)):
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

    _fast()
    workers = 4 if fault else 16
    loader = DataLoader(Slow(), batch_size=16, num_workers=workers, pin_memory=True)  # type: ignore[arg-type]
    model = _resnet()
    optimizer = _adam(model)
    for x, y in _endless(loader):
        images = x.to(device(), non_blocking=True).float().div_(255)
        if not clock(_step(model, optimizer, images, y.to(device(), non_blocking=True))):
            return


def validation(fault: bool, clock: Clock) -> None:
    """A validation of 40 batches after every fifth step."""
    import torch

    _fast()
    model = _resnet()
    optimizer = _adam(model)
    x, y = _images(32), _labels(32)

    def evaluate() -> float:
        model.eval()
        with torch.no_grad():
            total = sum(float((model(x).argmax(1) == y).float().mean()) for _ in range(40))
        model.train()
        return total / 40

    every = 5 if fault else 1 << 30
    at = 0
    while True:
        loss = _step(model, optimizer, x, y)
        at += 1
        if at % every == 0:
            evaluate()
        if not clock(loss):
            return


def log_flush(fault: bool, clock: Clock) -> None:
    """A log line a step, each forced to disk, with a histogram of the weights."""
    import torch

    _fast()
    model = _transformer(width=512, layers=4)
    optimizer = _adam(model)
    tokens = torch.randint(0, 16000, (8, 256), device=device())
    with tempfile.TemporaryFile("w") as log:
        at = 0
        while True:
            loss = _step(model, optimizer, tokens, tokens)
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

    _fast()
    model = _transformer(width=512, layers=6)
    optimizer = _adam(model)
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

    _fast()
    model = _resnet()
    optimizer = _adam(model)
    x, y = _images(96), _labels(96)
    draw = torch.Generator().manual_seed(0)

    def augment(image: torch.Tensor) -> torch.Tensor:
        if torch.rand((), generator=draw).item() < 0.5:
            image = image.flip(-1)
        gain = 1 + 0.2 * torch.rand((), generator=draw).item()
        image = (image - image.mean((-1, -2), keepdim=True)) / (image.std((-1, -2), keepdim=True) + 1e-5)
        return (image * gain).clamp(-3, 3).roll(int(8 * gain), -1)

    while True:
        images = torch.stack([augment(image) for image in x]) if fault else x * 1.1
        if not clock(_step(model, optimizer, images.contiguous(memory_format=torch.channels_last), y)):
            return


class Texts:
    """Texts that are tokenized when they are asked for."""

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        import torch

        words = f"sample {index} of a text that says little and repeats itself " * 60
        ids = [hash_of(word) for word in words.split() for _ in range(2)]
        row = torch.tensor((ids * 2)[:256])
        return {"input_ids": row, "labels": row}


def hash_of(word: str) -> int:
    """A token's number, letter by letter, the same in every process."""
    value = 0
    for letter in word:
        value = (value * 131 + ord(letter)) % 8000
    return value


def hf_trainer(fault: bool, clock: Clock) -> None:
    """Hugging Face's Trainer with its default of no loader workers."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    _fast()
    sizes = GPT2Config(vocab_size=8000, n_positions=256, n_embd=512, n_layer=6, n_head=8, use_cache=False)

    class Timer(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
            if not clock():
                control.should_training_stop = True

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=32,
            max_steps=clock.warm + clock.steps,
            bf16=device() == "cuda",
            dataloader_num_workers=0 if fault else 12,
            save_strategy="no",
            report_to=[],
            logging_steps=1000,
            disable_tqdm=True,
            torch_compile=False,
        )
        trainer = Trainer(GPT2LMHeadModel(sizes), arguments, train_dataset=Texts(), callbacks=[Timer()])  # type: ignore[arg-type]
        trainer.train()


class Pictures:
    """Images blurred by hand on the CPU."""

    def __len__(self) -> int:
        return 1 << 16

    def __getitem__(self, index: int) -> Any:
        import torch
        from torch.nn import functional

        draw = torch.Generator().manual_seed(index)
        image = torch.rand((1, 3, 256, 256), generator=draw)
        for _ in range(4):
            image = functional.avg_pool2d(image, 5, 1, 2)
        return image[0, :, 16:240, 16:240].contiguous(), index % 1000


def lightning(fault: bool, clock: Clock) -> None:
    """Lightning's Trainer over a loader without workers."""
    import lightning as pl
    import torch
    from torch.nn import functional
    from torch.utils.data import DataLoader

    _fast()

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = _resnet().cpu()

        def training_step(self, batch: Any, _: int) -> Any:
            x, y = batch
            return functional.cross_entropy(self.net(x), y)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

        def on_train_batch_end(self, *_: Any) -> None:
            if not clock():
                self.trainer.should_stop = True

    workers = 0 if fault else 14
    loader = DataLoader(
        Pictures(),  # type: ignore[arg-type]
        batch_size=32,
        num_workers=workers,
        pin_memory=True,
        persistent_workers=bool(workers),
    )
    trainer = pl.Trainer(
        max_steps=clock.warm + clock.steps,
        precision="bf16-mixed",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        min_steps=1,
    )
    trainer.fit(Net(), loader)


def cuda_graph(fault: bool, clock: Clock) -> None:  # noqa: ARG001 - healthy in both variants
    """A whole training step captured once and replayed: next to no launches, and the device is full."""
    import torch

    _fast()
    model = _transformer(width=1024, layers=6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
    tokens = torch.randint(0, 16000, (16, 512), device=device())
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            _step(model, optimizer, tokens, tokens)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = _step(model, optimizer, tokens, tokens)
    while True:
        graph.replay()
        if not clock(loss):
            return


def accumulate_bf16(fault: bool, clock: Clock) -> None:  # noqa: ARG001 - healthy in both variants
    """Four large micro-batches a step: accumulation that costs nothing."""
    import torch
    from torch.nn import functional

    _fast()
    model = _transformer(width=1024, layers=6)
    optimizer = _adam(model)
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


if __name__ == "__main__":
    sys.exit(main())
