"""The loop prints, plots or sends metrics in every step.

Why it costs
    Printing and drawing happen on the training thread; trackers serialize and send from it, and most values that
    are shown have to be read from the device first.

Fix
    Log every N steps.

When it stays silent
    Behind a condition that counts steps, and where a library decides when it sends (Lightning's self.log).
    Of lines that are printed one after the other the first is told.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.step_work import calls
from underfed.audit.trainers import trainer_arguments

_TRACKERS = ("wandb.log", "mlflow.log_", "neptune.", "comet_ml.", "trackio.log", "swanlab.log")
_BOARD = frozenset({"add_scalar", "add_scalars", "log_metric", "log_metrics"})
_HEAVY = frozenset(
    {"add_histogram", "add_image", "add_images", "add_figure", "add_graph", "add_video", "add_embedding"}
)
_PLOTS = (
    "matplotlib.pyplot.savefig",
    "matplotlib.pyplot.show",
    "matplotlib.pyplot.pause",
    "torchvision.utils.save_image",
    "cv2.imwrite",
    "cv2.imshow",
)


def check(code: Code) -> Iterator[Hit]:
    """Find logging in the step, and trainers and progress bars that are told to log each step."""
    yield from (hit for hit in calls(code, _judge) if not _follows_another(code, hit.node))
    for call in code.calls:
        name = code.module.called(call)
        if code.method_name(call) == "Trainer" and _is(code, call, "log_every_n_steps", 1):
            yield Hit(call, "log_every_n_steps=1 sends metrics in every step", "likely")
        elif name.startswith("tqdm") and (_is(code, call, "mininterval", 0) or _is(code, call, "miniters", 1)):
            if code.whole.heat.level(code.module, call) is None:
                yield Hit(call, "this progress bar is drawn in every pass: mininterval or miniters says so", "possible")
    for arguments in trainer_arguments(code.module, code.whole.values):
        if arguments.each_step("logging", "logging_strategy", otherwise=True):
            text = "logging_steps=1 reads the loss from the GPU and sends it in every step"
            yield Hit(arguments.call, text, "likely")


def _follows_another(code: Code, node: ast.AST) -> bool:
    """Return whether a print() stands right behind another one: they are one place to change."""
    statement = code.module.statement_of(node)
    if statement is None or code.module.called(node) != "print":
        return False
    around = code.module.parents[statement]
    for name in ("body", "orelse", "finalbody"):
        block = getattr(around, name, [])
        if isinstance(block, list) and statement in block[1:]:
            before = block[block.index(statement) - 1]
            return isinstance(before, ast.Expr) and code.module.called(before.value) == "print"
    return False


def _is(code: Code, call: ast.Call, name: str, wanted: int) -> bool:
    value = code.value(code.keyword(call, name))
    return value.known and value.value == wanted and not isinstance(value.value, bool)


def _judge(call: ast.Call, name: str, method: str) -> tuple[str, Sure] | None:
    if name == "print":
        return "print() in every step", "certain"
    if name in {"sys.stdout.write", "sys.stdout.flush", "tqdm.tqdm.write"} or (
        method == "write" and name.endswith("tqdm.write")
    ):
        return f"{name}() in every step", "likely"
    if name.startswith(_TRACKERS):
        return f"{name}() in every step", "likely"
    if name.startswith(_PLOTS) or method in _HEAVY or method == "savefig":
        return f"{method}() in every step: drawing and writing take far longer than a step's launches", "certain"
    if method in _BOARD:
        return f"{method}() in every step", "likely"
    if method in {"info", "warning"} and name.partition(".")[0] in {"logging", "logger", "log", "LOGGER", "_logger"}:
        return f"{name}() in every step", "likely"
    if method in {"set_postfix", "set_postfix_str", "set_description"} and isinstance(call.func, ast.Attribute):
        return f"{method}() in every step redraws the progress bar", "possible"
    return None


RULE = AuditRule(
    id="X8",
    name="logging-on-training-thread",
    settle="`underfed run`: the share of the step on these lines",
    doc=__doc__ or "",
    check=check,
)
