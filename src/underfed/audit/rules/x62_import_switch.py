"""A module switches something for the whole process when it is imported.

Why it costs
    Whoever imports a helper for one function trains with its switches too: 64-bit default, one thread, the CPU as
    default.

Fix
    Move it below `if __name__ == "__main__":` or into the program that wants it.

When it stays silent
    In scripts, whose own switches they are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from underfed.audit.finding import Hit
from underfed.audit.module import FunctionNode
from underfed.audit.rule import AuditRule, Code

_SWITCHES = frozenset(
    {
        "torch.set_default_dtype",
        "torch.set_default_tensor_type",
        "torch.set_default_device",
        "torch.set_num_threads",
        "torch.set_num_interop_threads",
        "torch.set_grad_enabled",
        "torch.multiprocessing.set_sharing_strategy",
        "torch.multiprocessing.set_start_method",
        "multiprocessing.set_start_method",
        "torch.autograd.set_detect_anomaly",
        "torch.use_deterministic_algorithms",
    }
)

_FLAGS = frozenset(
    {
        ("torch.backends.cudnn.enabled", "False"),
        ("torch.backends.cudnn.deterministic", "True"),
        ("torch.backends.cuda.matmul.allow_tf32", "False"),
    }
)
_VARIABLE = re.compile(r"os\.environ\['(CUDA_LAUNCH_BLOCKING|(OMP|MKL|OPENBLAS)_NUM_THREADS|CUDA_VISIBLE_DEVICES)'\]$")


def check(code: Code) -> Iterator[Hit]:
    """Find process-wide switches at the top level of modules that others import."""
    if "__main__" in code.module.source or code.module not in code.project.imported:
        return
    for call in code.calls:
        name = code.module.called(call)
        if name not in _SWITCHES or any(
            isinstance(around, FunctionNode | ast.ClassDef) for around in code.module.up(call)
        ):
            continue
        harmless = (
            name.endswith("sharing_strategy") or "float32" in ast.unparse(call) or "bfloat16" in ast.unparse(call)
        )
        if not harmless:
            yield Hit(call, f"importing this module calls {ast.unparse(call)[:60]} for the whole process", "likely")

    for node in code.module.of(ast.Assign):
        text = ast.unparse(node.targets[0])
        if any(isinstance(around, FunctionNode | ast.ClassDef) for around in code.module.up(node)):
            continue
        variable = _VARIABLE.match(text)
        slows = (code.module.qualified(node.targets[0]), ast.unparse(node.value)) in _FLAGS
        if slows or (variable and code.module.imports.get("os") == "os"):
            yield Hit(node, f"importing this module sets {text} for the whole process", "likely")


RULE = AuditRule(
    id="X62",
    name="switch-thrown-by-import",
    settle="torch.get_default_dtype(), torch.get_num_threads() in the running process",
    doc=__doc__ or "",
    check=check,
)
