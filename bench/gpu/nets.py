"""What the scripts with planted faults are made of: a clock, models, one training step."""

from __future__ import annotations

import struct
import time
from typing import Any


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


def fast() -> None:
    import torch

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


def transformer(width: int = 1024, layers: int = 8, vocab: int = 16000) -> Any:
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


def resnet() -> Any:
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


def train_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    import torch
    from torch.nn import functional

    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(device(), dtype=torch.bfloat16):
        out = model(x)
        loss = functional.cross_entropy(out.reshape(-1, out.shape[-1]).float(), y.reshape(-1))
    loss.backward()
    optimizer.step()
    return loss


def adam(model: Any) -> Any:
    import torch

    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def images_of(batch: int, size: int = 224) -> Any:
    import torch

    return torch.randn(batch, 3, size, size, device=device()).to(memory_format=torch.channels_last)


def labels_of(batch: int) -> Any:
    import torch

    return torch.randint(0, 1000, (batch,), device=device())
