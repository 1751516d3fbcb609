"""Callbacks in real loops of the frameworks, on the CPU."""

from __future__ import annotations

import logging
import math
import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("lightning")

from library_help import changed, touched

import underfed
from underfed.diagnosis import Diagnosis
from underfed.errors import UsageError
from underfed.library.watching import going

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="underfed watches on Linux only")]


class Rows(torch.utils.data.Dataset):
    """Rows that wait; `labels` as transformers wants them."""

    def __init__(self, steps: int = 60) -> None:
        self.steps = steps

    def __len__(self) -> int:
        return 4 * self.steps

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.006)
        return {"x": torch.full((8,), float(index % 5)), "labels": torch.tensor(index % 2)}


class Tiny(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}


def hf(folder: Path, callbacks: list[Any]) -> Any:
    from transformers import Trainer, TrainingArguments

    settings = TrainingArguments(
        output_dir=str(folder),
        max_steps=60,
        per_device_train_batch_size=4,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
    )
    trainer = Trainer(model=Tiny(), args=settings, train_dataset=Rows(), callbacks=callbacks)
    trainer.train()
    return trainer


def test_the_hf_trainer_is_watched_and_its_numbers_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain = hf(tmp_path, [])
    before = touched()
    given: list[Diagnosis] = []
    callback = underfed.callbacks.HFCallback(out=tmp_path / "recording", then=given.append)
    with caplog.at_level(logging.INFO, logger="underfed"):
        trainer = hf(tmp_path, [callback])
    assert changed(before) == []
    assert callback.diagnosis is not None
    assert callback.diagnosis.verdict.bound == "data"
    assert given == [callback.diagnosis]
    (row,) = [one for one in trainer.state.log_history if "underfed/bound" in one]
    assert row["underfed/bound"] == "data"
    assert row["underfed/step_ms"] == callback.diagnosis.step.ms
    assert row["step"] == 60
    assert any("data-bound" in record.getMessage() for record in caplog.records)
    for one, other in zip(plain.model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert underfed.open(tmp_path / "recording").processes


def lightning_fit(folder: Path, callbacks: list[Any], *, steps: int = 60, fails: bool = False) -> Any:
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import CSVLogger

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Tiny()

        def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
            if fails and number == 5:
                raise RuntimeError("mine")
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=CSVLogger(str(folder)),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
    )
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(Rows(steps), batch_size=4))
    return trainer, module


def test_lightning_is_watched_and_its_loggers_get_the_budget(tmp_path: Path) -> None:
    import pandas

    _, plain = lightning_fit(tmp_path / "plain", [])
    before = touched()
    callback = underfed.callbacks.LightningCallback()
    trainer, module = lightning_fit(tmp_path / "watched", [callback])
    assert changed(before) == []
    assert callback.diagnosis is not None
    assert callback.diagnosis.verdict.bound == "data"
    table = pandas.read_csv(Path(trainer.logger.log_dir) / "metrics.csv")
    (value,) = table["underfed/step_ms"].dropna()
    assert callback.diagnosis.step.ms is not None
    assert math.isclose(value, callback.diagnosis.step.ms, rel_tol=1e-6)
    for one, other in zip(plain.parameters(), module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_fit_that_fails_leaves_nothing_armed(tmp_path: Path) -> None:
    lightning_fit(tmp_path / "plain", [], steps=5)  # Lightning leaves something of its own in the DataLoader
    before = touched()
    callback = underfed.callbacks.LightningCallback()
    with pytest.raises(RuntimeError, match="mine"):
        lightning_fit(tmp_path, [callback], fails=True)
    assert changed(before) == []
    assert going() is None


def test_each_fit_is_watched_anew_also_behind_one_that_failed_unsaid(tmp_path: Path) -> None:
    lightning_fit(tmp_path / "plain", [], steps=5)
    before = touched()
    callback = underfed.callbacks.LightningCallback()
    found = []
    for number in range(2):
        lightning_fit(tmp_path / str(number), [callback], steps=20)
        found.append(callback.diagnosis)
    assert None not in found
    assert found[0] is not found[1]
    around = callback._around
    around.begin()  # as a Trainer of transformers that fails: it never calls the end
    around.begin()
    assert around.diagnosis is None
    around.end()
    assert changed(before) == []
    assert going() is None


def test_inside_a_watch_the_callback_looks_through_it(tmp_path: Path) -> None:
    callback = underfed.callbacks.LightningCallback()
    with underfed.watch() as w:
        lightning_fit(tmp_path, [callback])
        assert going() is w
    assert callback.diagnosis is not None
    assert callback.diagnosis.verdict.bound == "data"


def test_what_follows_may_fail_and_the_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Diagnosis) -> None:
        raise OSError("the tracker is away")

    callback = underfed.callbacks.LightningCallback(then=broken)
    with caplog.at_level(logging.WARNING, logger="underfed"):
        lightning_fit(tmp_path, [callback], steps=20)
    assert "the tracker is away" in caplog.text
    assert callback.diagnosis is not None


def test_wrong_arguments_and_missing_frameworks_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="window=0"):
        underfed.callbacks.HFCallback(window=0)
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(sys.modules, "underfed.callbacks.hf")
    with pytest.raises(UsageError, match="needs transformers"):
        _ = underfed.callbacks.HFCallback
