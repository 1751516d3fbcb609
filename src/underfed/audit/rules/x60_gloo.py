"""Processes that train on GPUs talk through gloo.

Why it costs
    gloo takes every gradient through host memory and the network stack; NCCL uses the links between GPUs.

Fix
    init_process_group("nccl"), or no backend at all, which picks one for each kind of device.

When it stays silent
    The backend depends on the platform or a setting, or no GPU is spoken of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from underfed.audit.edits import replace
from underfed.audit.finding import Fix, Hit
from underfed.audit.rule import AuditRule, Code
from underfed.audit.rules.t12_debug import guarded

_CUDA = r"\.cuda\(|[\"']cuda|set_device"
_STARTS = frozenset({"init_process_group", "InitProcessGroupKwargs", "DDPStrategy", "FSDPStrategy"})


def check(code: Code) -> Iterator[Hit]:
    """Find gloo as the only backend of a project with GPUs."""
    if not code.project.mentions(_CUDA):
        return
    speaks = re.search(_CUDA, code.module.source)
    for call in code.calls:
        if code.method_name(call) not in _STARTS or "." not in (code.module.called(call) or ""):
            continue
        backend = call.args[0] if call.args and "init" in code.method_name(call) else None
        backend = backend or code.keyword(call, "backend") or code.keyword(call, "process_group_backend")
        value = code.value(backend)
        sure = guarded(code, call)
        if not value.known or value.value != "gloo" or sure is None or code.project.mentions(r"[\"']nccl"):
            continue
        fix = (
            Fix("use NCCL", False, (replace(code.module, backend, '"nccl"'),))
            if isinstance(backend, ast.Constant)
            else None
        )
        yield Hit(
            call,
            "gloo takes gradients through host memory; NCCL uses the links between GPUs",
            "certain" if not value.is_default and sure == "certain" and speaks else "likely",
            fix,
        )


RULE = AuditRule(
    id="X60",
    name="gloo-with-gpus",
    settle="`underfed read` on a trace: collectives on the host",
    doc=__doc__ or "",
    check=check,
)
