"""Deterministic or disabled cuDNN, or no search for its fastest kernels: the fast kernels are not used.

Why it costs
    The deterministic variant of a kernel is often slower, cudnn.enabled = False takes cuDNN away altogether, and
    with cudnn.benchmark = False it takes the kernel that it guesses to be the fastest for a convolution.

Fix
    Keep it for the runs that must repeat to the bit, behind an option.

When it stays silent
    Behind a setting that is off by default. Whether repeatability is wanted cannot be seen, so only a disabled
    cuDNN is more than possible.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure, least
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.t12_debug import guarded

_FLAGS: dict[str, tuple[bool, Sure]] = {
    "torch.backends.cudnn.deterministic": (True, "possible"),
    "torch.backends.cudnn.enabled": (False, "certain"),
    "torch.backends.cudnn.benchmark": (False, "possible"),
}


def check(code: Code) -> Iterator[Hit]:
    """Find flags that keep fast kernels away."""
    for node in code.module.of(ast.Assign):
        flag = _FLAGS.get(code.module.qualified(node.targets[0]) or "")
        sure = guarded(code, node)
        if flag and isinstance(node.value, ast.Constant) and node.value.value is flag[0] and sure is not None:
            text = f"{ast.unparse(node)} keeps the fast kernels away"
            yield Hit(node, text, least(sure, flag[1]))
    for call in code.calls:
        if (
            code.module.called(call) == "torch.use_deterministic_algorithms"
            and call.args
            and guarded(code, call) is not None
        ):
            if isinstance(call.args[0], ast.Constant) and call.args[0].value is True:
                yield Hit(call, "use_deterministic_algorithms(True) keeps the fast kernels away", "possible")


RULE = AuditRule(
    id="X47",
    name="deterministic-kernels",
    settle="two short runs, with and without",
    doc=__doc__ or "",
    check=check,
)
