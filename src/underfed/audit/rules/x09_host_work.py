"""The loop computes on the host in every step what the device or a later pass could: metrics, moving averages.

Why it costs
    The results must first be read from the device, and Python works while it idles.

Fix
    Keep predictions on the device and compute metrics at the end of the epoch, or with torchmetrics on the
    device; keep an average of the weights on the device and update it with torch._foreach_lerp_ or
    swa_utils.AveragedModel.

When it stays silent
    Outside the step and behind a condition that counts steps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.step_work import calls


def check(code: Code) -> Iterator[Hit]:
    """Find host work in the step."""
    return calls(code, _judge)


def _judge(call: ast.Call, name: str, method: str) -> tuple[str, Sure] | None:
    if name.startswith("sklearn.metrics."):
        return f"{name.removeprefix('sklearn.')}() computes on the host in every step", "certain"
    if name in {"time.sleep", "subprocess.run", "os.system", "os.popen"}:
        return f"{name}() stops the training thread in every step", "certain" if name == "time.sleep" else "likely"
    if name in {"copy.deepcopy"} and "model" in ast.unparse(call):
        return "copy.deepcopy() copies the model in every step", "likely"
    if name in {"psutil.cpu_percent", "pynvml.nvmlInit", "GPUtil.getGPUs", "GPUtil.showUtilization"}:
        return f"{name}() asks the machine in every step", "likely"
    return None


RULE = AuditRule(
    id="X9",
    name="work-on-training-thread",
    settle="`underfed run`: the share of the step on these lines",
    doc=__doc__ or "",
    check=check,
)
