"""Trackers: what was written, read back by each tracker's own reader."""

from __future__ import annotations

import importlib.util
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import underfed
from underfed.diagnosis import Diagnosis, Finding, Fix, Gain, Step, Subject, Verdict, Waits, from_json
from underfed.errors import UsageError

HOSTILE = "name with \x1b[31m <script> \u202e and\nlines"
DIAGNOSIS = Diagnosis(
    subject=Subject(kind="run", paths=[], steps=120, device="CPU"),
    verdict=Verdict(bound="data", cause="T4", confidence="high", text=f"Training waits for input. {HOSTILE}"),
    step=Step(ms=22.5, device_ms=12.25, device_share=0.544, wait_ms=Waits(data=10.0, stall=0.25)),
    findings=[
        Finding(
            rule="T4",
            name="too-few-loader-workers",
            stage="dataloader",
            bound="data",
            numerics="exact",
            summary="few workers",
            gain=Gain(at_most=1.8),
            fix=Fix(text="more workers"),
        )
    ],
)
FIGURES = {
    "underfed/step_ms": 22.5,
    "underfed/device_ms": 12.25,
    "underfed/device_share": 0.544,
    "underfed/wait_data_ms": 10.0,
    "underfed/wait_stall_ms": 0.25,
    "underfed/gain_at_most": 1.8,
}


def needs(package: str) -> pytest.MarkDecorator:
    there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(not there, reason=f"{package} is not installed")


@needs("tensorboard")
@pytest.mark.torch
def test_tensorboard_reads_figures_and_verdict_beside_those_of_the_run(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 0.5, 1)
        underfed.writers.tensorboard(DIAGNOSIS, writer)
        writer.add_scalar("loss", 0.25, 2)  # the run's own writer is still open
    seen = EventAccumulator(str(tmp_path)).Reload()
    assert [event.value for event in seen.Scalars("loss")] == [0.5, 0.25]
    for name, value in FIGURES.items():
        (event,) = seen.Scalars(name)
        assert (event.step, event.value) == (120, pytest.approx(value))
    assert set(seen.Tags()["scalars"]) == {"loss", *FIGURES}
    (text,) = seen.Tensors("underfed/verdict/text_summary")
    words = text.tensor_proto.string_val[0].decode()
    assert "data-bound" in words
    assert "\x1b" not in words
    underfed.writers.tensorboard(DIAGNOSIS, tmp_path / "by_folder", step=7)
    (event,) = EventAccumulator(str(tmp_path / "by_folder")).Reload().Scalars("underfed/step_ms")
    assert (event.step, event.value) == (7, 22.5)


@needs("mlflow")
def test_mlflow_reads_metrics_tags_and_artifacts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    import mlflow

    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    try:
        with pytest.raises(UsageError, match="no run is active"):
            underfed.writers.mlflow(DIAGNOSIS)
        with mlflow.start_run() as run:
            mlflow.log_metric("loss", 0.5)
            underfed.writers.mlflow(DIAGNOSIS)
            assert mlflow.active_run() is not None
        client = mlflow.MlflowClient()
        seen = client.get_run(run.info.run_id)
        assert seen.data.metrics == {"loss": 0.5, **FIGURES}
        assert client.get_metric_history(run.info.run_id, "underfed/step_ms")[0].step == 120
        assert seen.data.tags["underfed.bound"] == "data"
        assert seen.data.tags["underfed.cause"] == "T4"
        assert "\x1b" not in seen.data.tags["underfed.verdict"]
        kept = Path(client.download_artifacts(run.info.run_id, "underfed/diagnosis.json", str(tmp_path)))
        assert from_json(kept.read_bytes()) == DIAGNOSIS
        assert "data-bound" in mlflow.artifacts.load_text(f"{seen.info.artifact_uri}/underfed/report.md")
        underfed.writers.mlflow(DIAGNOSIS, run.info.run_id, step=3)  # a run that has ended
        assert client.get_metric_history(run.info.run_id, "underfed/step_ms")[-1].step == 3
    finally:
        mlflow.set_tracking_uri(None)


def records(path: Path) -> Iterator[bytes]:
    """Yield the records of a .wandb file: a log of LevelDB's, blocks of 32 KiB, behind a header of seven bytes."""
    data, at, record = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in {1, 4}:  # whole, or the last part
            yield record
            record = b""


def wandb_rows(folder: Path) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return the history and the summary of an offline run, decoded by wandb's own messages."""
    from wandb.proto import wandb_internal_pb2 as pb

    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    history: list[dict[str, str]] = []
    summary: dict[str, str] = {}

    def key(item: Any) -> str:
        return item.key or "/".join(item.nested_key)

    for data in records(path):
        record = pb.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            history.append({key(item): item.value_json for item in record.history.item})
        if record.HasField("summary"):
            summary.update({key(item): item.value_json for item in record.summary.update})
    return history, summary


@needs("wandb")
def test_wandb_keeps_history_and_summary_offline(tmp_path: Path) -> None:
    source = f"""
import sys, wandb, underfed
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_writers import DIAGNOSIS
try:
    underfed.writers.wandb(DIAGNOSIS)
except underfed.UnderfedError as error:
    print(error)
run = wandb.init(mode="offline", dir=sys.argv[1], project="p")
run.log({{"loss": 0.5}})
underfed.writers.wandb(DIAGNOSIS)
run.log({{"loss": 0.25}})
run.finish()
"""
    done = subprocess.run([sys.executable, "-c", source, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no run is active" in done.stdout
    history, summary = wandb_rows(tmp_path)
    assert [float(row["loss"]) for row in history if "loss" in row] == [0.5, 0.25]
    (ours,) = [row for row in history if "underfed/step_ms" in row]
    assert {name: float(ours[name]) for name in FIGURES} == pytest.approx(FIGURES)
    assert summary["underfed/bound"] == '"data"'
    assert "\\u001b" not in summary["underfed/verdict"]


def test_a_missing_tracker_is_named_with_its_extra() -> None:
    source = """
import sys, underfed
from underfed.diagnosis import Diagnosis, Subject, Verdict
d = Diagnosis(subject=Subject(kind="run", paths=[]), verdict=Verdict(bound="unknown", confidence="low", text="-"))
for name in ("tensorboard", "wandb", "mlflow"):
    sys.modules[name] = None
    try:
        getattr(underfed.writers, name)(d, *(["x"] if name == "tensorboard" else []))
    except underfed.UnderfedError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert [
        f"pip install 'underfed[{name}]'" in line
        for name, line in zip(("tensorboard", "wandb", "mlflow"), lines, strict=True)
    ] == [True] * 3, done.stderr
