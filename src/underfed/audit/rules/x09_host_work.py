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
import re
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure, least
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.step_work import calls

#: Averages of weights that can be told where to live.
_AVERAGES = re.compile(r"(^|\.)(\w*Ema(V\d)?|\w*EMA(\w*)|ExponentialMovingAverage|AveragedModel)$")
_WEIGHTS = re.compile(r"\.(named_)?(parameters|buffers)\(\)|state_dict\(\)\.(items|values)\(\)")


def check(code: Code) -> Iterator[Hit]:
    """Find host work in the step, and averages and metrics that are kept on the CPU."""
    yield from calls(code, _judge)
    if not code.project.uses_gpu:
        return
    for hot in code.hot:
        if isinstance(hot.node, ast.For) and _WEIGHTS.search(ast.unparse(hot.node.iter)):
            fetch = next((node for node in ast.walk(hot.node) if _to_host(node)), None)
            if fetch is not None:
                text = f"{code.short(fetch)} copies every weight to the host in every step"
                yield Hit(fetch, text, least(hot.sure, "likely"))
    for call in code.calls:
        name = code.module.called(call) or code.method_name(call)
        device = code.value(code.keyword(call, "device"))
        if _AVERAGES.search(name) and device.known and device.value == "cpu":
            text = f"{name.rpartition('.')[2]} on the CPU copies every weight to the host at each update"
            yield Hit(call, text, "likely" if not device.is_default else "possible")
        elif code.is_true(call, "compute_on_cpu"):
            yield Hit(call, "compute_on_cpu=True copies predictions to the host at each update", "likely")


def _to_host(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "cpu" and not node.args:
        return True
    first = node.args[0] if node.args else None
    return node.func.attr == "to" and isinstance(first, ast.Constant) and first.value == "cpu"


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
