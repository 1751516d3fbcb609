"""Threads of libraries are not limited where it counts: OpenCV in workers, or a variable that is set too late.

Why it costs
    OpenCV starts one thread a CPU in every worker, so they fight for the CPUs; OMP_NUM_THREADS and its kin are
    read when numpy or torch is imported, so setting them after that does nothing.

Fix
    cv2.setNumThreads(0) in worker_init_fn or at import; set variables before the first import, or in the shell.

When it stays silent
    Something in the project limits OpenCV's threads, no loader has workers, or the variable is set first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.module import FunctionNode
from underfed.audit.rule import AuditRule, Code

_VARIABLES = frozenset({"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"})
_READERS = frozenset({"numpy", "torch", "scipy", "sklearn", "pandas"})


def check(code: Code) -> Iterator[Hit]:
    """Find variables that are set too late, and OpenCV with all its threads."""
    first = min(
        (
            node.lineno
            for node in code.module.tree.body
            if isinstance(node, ast.Import | ast.ImportFrom) and _reads(node)
        ),
        default=None,
    )
    for node in code.module.of(ast.Assign):
        target = node.targets[0]
        if not isinstance(target, ast.Subscript) or code.module.qualified(target.value) != "os.environ":
            continue
        if (
            isinstance(target.slice, ast.Constant)
            and target.slice.value in _VARIABLES
            and first is not None
            and node.lineno > first
        ):
            if not any(isinstance(around, FunctionNode) for around in code.module.up(node)):
                yield Hit(
                    node,
                    f"{target.slice.value} is set after line {first} imported what reads it: it has no effect here",
                    "likely",
                )
    if code.project.mentions(r"setNumThreads"):
        return
    workers = [one.workers for one in code.whole.loaders]
    if not any(count.known and isinstance(count.value, int) and count.value > 0 for count in workers):
        return
    for hot in code.sampled:
        if isinstance(hot.node, ast.Call) and code.module.called(hot.node).startswith("cv2."):
            name = code.module.called(hot.node)
            if name.rpartition(".")[2] in {
                "resize",
                "GaussianBlur",
                "warpAffine",
                "warpPerspective",
                "cvtColor",
                "remap",
                "blur",
                "medianBlur",
                "filter2D",
                "bilateralFilter",
            }:
                yield Hit(
                    hot.node,
                    f"{name}() runs with one thread a CPU in every worker: cv2.setNumThreads(0) is missing",
                    "likely",
                )
                return


def _reads(node: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name.partition(".")[0] in _READERS for name in names)


RULE = AuditRule(
    id="X61",
    name="library-threads-not-limited",
    settle="`underfed run`: threads of the workers, and time that the kernel spends switching",
    doc=__doc__ or "",
    check=check,
)
