"""cuDNN searches for the fastest kernel for every new shape, and shapes change from step to step.

Why it costs
    With cudnn.benchmark = True each shape that was not seen before costs a search of up to seconds.

Fix
    torch.backends.cudnn.benchmark = False, or a few fixed sizes.

When it stays silent
    No sign of changing sizes in the project.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import replace
from underfed.audit.finding import Fix, Hit, least
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.t12_debug import guarded

#: A size that is drawn.
RANDOM_SIZE = r"(size|imgsz|sz|side|height|width)\s*=\s*(\w+\.)*rand(int|range|om)?\(|size\s*=\s*(\w+\.)*choice\("
_CHANGES = (
    r"RandomResize\b|RandomShortestSize|ResizeShortestEdge|multi_?scale_train|multiscale_size|detection\.\w+rcnn|fasterrcnn_\w+"
    r"|maskrcnn_\w+|retinanet_\w+"
    rf"|{RANDOM_SIZE}"
)


def check(code: Code) -> Iterator[Hit]:
    """Find the search switched on in a project whose sizes change."""
    for node in code.module.of(ast.Assign):
        if code.module.qualified(node.targets[0]) != "torch.backends.cudnn.benchmark":
            continue
        value = code.value(node.value)
        sure = guarded(code, node)
        if not value.known or value.value is not True or sure is None or not code.project.mentions(_CHANGES):
            continue
        fix = Fix("switch the search off", False, (replace(code.module, node.value, "False"),))
        yield Hit(
            node, "cudnn.benchmark searches anew for every new shape, and sizes change here", least(sure, "likely"), fix
        )


RULE = AuditRule(
    id="X48",
    name="cudnn-search-with-changing-shapes",
    settle="`underfed run`: slow steps at shapes that were not seen before",
    doc=__doc__ or "",
    check=check,
)
