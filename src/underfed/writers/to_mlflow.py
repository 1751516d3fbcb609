"""Into MLflow: figures as metrics, the verdict as tags, the diagnosis as artifacts."""

from __future__ import annotations

from typing import Any

from underfed.diagnosis import Diagnosis, to_json
from underfed.errors import UsageError
from underfed.pictures.markdown import render
from underfed.writers.figures import figures, verdict

_LONGEST_TAG = 4000


def mlflow(diagnosis: Diagnosis, run_id: str | None = None, *, step: int | None = None) -> None:
    """Add the budget and the verdict to a run of MLflow.

    `run_id` names the run; default: the one that is active. `step` is where on the axis the figures go; default: the
    number of steps seen. Raises UsageError where mlflow is missing or no run is active.
    """
    try:
        import mlflow as module
    except ImportError:
        raise UsageError("writers.mlflow: needs mlflow: pip install 'underfed[mlflow]'") from None
    if run_id is None:
        active = module.active_run()
        if active is None:
            raise UsageError("writers.mlflow: no run is active; call mlflow.start_run() first, or give run_id=")
        run_id = active.info.run_id
    client: Any = module.MlflowClient()
    at = step if step is not None else diagnosis.subject.steps or 0
    for name, value in figures(diagnosis).items():
        client.log_metric(run_id, name, value, step=at)
    for name, words in verdict(diagnosis).items():
        client.set_tag(run_id, name.replace("/", "."), words[:_LONGEST_TAG])
    client.log_text(run_id, render(diagnosis), "underfed/report.md")
    client.log_text(run_id, to_json(diagnosis).decode(), "underfed/diagnosis.json")
