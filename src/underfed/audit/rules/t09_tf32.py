"""TF32 is switched off, so 32-bit matrix products do not use the tensor cores.

Why it costs
    On Ampere and later cards a 32-bit product runs several times slower without them.

Fix
    torch.set_float32_matmul_precision("high"); products then have 10 bits of mantissa, so no safe fix exists.

When it stays silent
    The switch depends on a setting, or is switched back; that it was never touched is told as possible, since mixed
    precision (T13) helps more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import replace
from underfed.audit.finding import Fix, Hit, Sure
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.t12_debug import guarded
from underfed.audit.rules.t13_no_amp import trains_in_32_bits

_PRECISIONS = frozenset(
    [
        "torch.backends.fp32_precision",
        "torch.backends.cuda.matmul.fp32_precision",
        "torch.backends.cudnn.conv.fp32_precision",
    ]
)
_FLAGS = {"torch.backends.cuda.matmul.allow_tf32": "certain", "torch.backends.cudnn.allow_tf32": "certain"}


def check(code: Code) -> Iterator[Hit]:
    """Find where TF32 is switched off."""
    for node in code.module.of(ast.Assign):
        name = code.module.qualified(node.targets[0]) or ""
        if guarded(code, node) is None:
            continue
        if name in _FLAGS and isinstance(node.value, ast.Constant) and node.value.value is False:
            sure: Sure = (
                "likely"
                if any(isinstance(one, ast.If | ast.Try | ast.With) for one in code.module.up(node))
                else "certain"
            )
            fix = Fix("switch TF32 on", False, (replace(code.module, node.value, "True"),))
            yield Hit(node, f"{name} = False keeps 32-bit products off the tensor cores", sure, fix)
        elif name in _PRECISIONS and isinstance(node.value, ast.Constant) and node.value.value == "ieee":
            fix = Fix("switch TF32 on", False, (replace(code.module, node.value, '"tf32"'),))
            yield Hit(node, f"{name} = 'ieee' keeps 32-bit products off the tensor cores", "likely", fix)
    if not code.project.mentions(r"tf32|float32_matmul_precision|fp32_precision"):
        head = trains_in_32_bits(code)
        if head is not None:
            yield Hit(head, "32-bit products stay off the tensor cores: nothing switches TF32 on", "possible")
    for call in code.calls:
        if code.module.called(call) == "torch.set_float32_matmul_precision" and call.args and guarded(code, call):
            level = call.args[0]
            if isinstance(level, ast.Constant) and level.value == "highest":
                fix = Fix('set the precision to "high"', False, (replace(code.module, level, '"high"'),))
                yield Hit(call, 'precision "highest" keeps 32-bit products off the tensor cores', "certain", fix)


RULE = AuditRule(
    id="T9",
    name="fp32-matmul-without-tensor-cores",
    settle="`underfed read` on a trace: kernels of 32-bit products without tensor cores",
    doc=__doc__ or "",
    check=check,
)
