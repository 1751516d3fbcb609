"""Batches are copied to the device from pageable memory, or by a call that waits for the copy.

Why it costs
    A copy from pageable memory goes through a buffer of the driver, and a copy without non_blocking=True makes
    Python wait until it is done; only both together let the copy run beside the computation.

Fix
    DataLoader(..., pin_memory=True) and x.to(device, non_blocking=True); results stay the same. Pinning on the
    training thread (x.pin_memory().to(...)) is slower than not pinning.

When it stays silent
    Nothing in the project speaks of a GPU, the data set itself makes tensors on the device, or the setting cannot
    be followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.edits import replace, set_keyword
from underfed.audit.finding import Edit, Fix, Hit, Sure, least
from underfed.audit.loaders import Loader
from underfed.audit.module import Class
from underfed.audit.rule import AuditRule, Code
from underfed.audit.tensors import moves


def check(code: Code) -> Iterator[Hit]:
    """Find loaders that do not pin, and copies of batches that wait."""
    if not code.project.uses_gpu:
        return
    for loader in code.loaders:
        yield from _pinning(code, loader)
    pins = code.whole.pins
    for hot in code.hot:
        node = hot.node
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        yield from _main_thread(code, node)
        if not moves(code.module, node) or not _is_batch(code, node.func.value):
            continue
        given = code.keyword(node, "non_blocking")
        if (given is not None and not code.is_false(node, "non_blocking")) or any(k.arg is None for k in node.keywords):
            continue
        if len(node.args) > 1:
            continue
        edit = set_keyword(code.module, node, "non_blocking", "True")
        text = f"{code.short(node)} waits for the copy: non_blocking is not set"
        if pins is False:
            text += ", and the loader does not pin"
        sure = least(hot.sure, "certain" if pins else "likely")
        yield Hit(
            node, text, sure, Fix("copy beside the computation", _takes_it(code, node), (edit,)) if edit else None
        )


def _pinning(code: Code, loader: Loader) -> Iterator[Hit]:
    pin = loader.argument("pin_memory", False)
    if not pin.known:
        code.not_known(loader.call, "pin_memory of a DataLoader")
        return
    if pin.value is not False or not code.whole.moves_batches or _on_device(code, loader):
        return
    edit = set_keyword(code.module, loader.call, "pin_memory", "True")
    fix = Fix("pin the batches", not loader.in_memory and not loader.batched_already, (edit,)) if edit else None
    moved = any(
        isinstance(hot.node, ast.Call)
        and isinstance(hot.node.func, ast.Attribute)
        and moves(code.module, hot.node)
        and _is_batch(code, hot.node.func.value)
        for hot in code.hot
    )
    sure: Sure = "certain" if moved and not pin.is_default and not loader.evaluates else "likely"
    if loader.in_memory or loader.batched_already:
        sure = "possible"
    yield Hit(
        loader.call, "batches are not pinned: pin_memory is not set, so copies to the GPU take the slow way", sure, fix
    )


def _on_device(code: Code, loader: Loader) -> bool:
    """Return whether the loader's samples may be on the device already: such tensors cannot be pinned."""
    found = loader.dataset_class
    nodes = []
    if isinstance(found, Class):
        nodes = [inner for one in code.project.ancestors(found)[0] for inner in ast.walk(one.node)]
        module = found.module
    else:
        data, module = loader.given("dataset"), code.module
        nodes = list(ast.walk(data)) if data is not None else []
    collate = loader.given("collate_fn")
    if collate is not None:
        name = code.module.qualified(collate) or ""
        target = code.project.find(name)
        body = collate if target is None or isinstance(target, tuple) else target.node
        nodes += list(ast.walk(body))
    return any(moves(module, node) or "device" in {k.arg for k in getattr(node, "keywords", [])} for node in nodes)


def _is_batch(code: Code, node: ast.AST) -> bool:
    homes = code.homes(node)
    at = node
    while isinstance(at, ast.Subscript | ast.Attribute):
        at = at.value
    if isinstance(at, ast.Name) and at.id in homes.batches:
        return True
    if isinstance(at, ast.Name):  # a comprehension's own name: {k: v.to(device) for k, v in batch.items()}
        for around in code.module.up(node):
            for generator in getattr(around, "generators", []):
                bound = {part.id for part in ast.walk(generator.target) if isinstance(part, ast.Name)}
                used = {part.id for part in ast.walk(generator.iter) if isinstance(part, ast.Name)}
                if at.id in bound and used & homes.batches:
                    return True
    return False


def _takes_it(code: Code, node: ast.Call) -> bool:
    """Return whether what is moved surely takes non_blocking: not a whole batch, which may be of any class."""
    for method in code.project.methods.get("to", []) + code.project.methods.get("cuda", []):
        if "non_blocking" not in method.parameters and method.node.args.kwarg is None:
            return False
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else node
    if isinstance(receiver, ast.Subscript):
        return True
    if not isinstance(receiver, ast.Name):
        return False
    for around in code.module.up(node):
        if isinstance(around, ast.For | ast.AsyncFor) and code.homes(node).over_loader(around):
            target = around.target
            if isinstance(target, ast.Tuple) and "enumerate(" in ast.unparse(around.iter):
                target = target.elts[-1]
            return isinstance(target, ast.Tuple)
    return False


def _main_thread(code: Code, node: ast.Call) -> Iterator[Hit]:
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    if not isinstance(inner, ast.Call) or not isinstance(inner.func, ast.Attribute) or inner.func.attr != "pin_memory":
        return
    if moves(code.module, node) and not inner.args:
        edit: Edit = replace(code.module, inner, code.module.text(inner.func.value))
        fix = Fix("do not pin on the training thread", True, (edit,))
        yield Hit(
            inner, "pin_memory() on the training thread costs more than the copy that it speeds up", "certain", fix
        )


RULE = AuditRule(
    id="T6",
    name="blocking-host-to-device-copy",
    settle="`underfed run`: time and size of the copies, and whether their memory is pinned",
    doc=__doc__ or "",
    check=check,
)
