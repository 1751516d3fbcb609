"""Training loops of Hugging Face and Lightning, starved by their loaders; used by faults.py."""

from __future__ import annotations

import tempfile
from typing import Any

from nets import Clock, device, fast, resnet


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

    fast()
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

    fast()

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = resnet().cpu()

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
