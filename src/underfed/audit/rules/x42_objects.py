"""A data set holds its samples as many Python objects or tensors, which workers touch one by one.

Why it costs
    Reading a Python object writes its reference count, so forked workers copy the pages that they should share:
    memory grows with the number of workers. Each tensor that is kept apart costs a file descriptor when it
    crosses processes.

Fix
    Keep one array or tensor for all samples (np.array(paths), torch.stack), or a table in Arrow.

When it stays silent
    Names of files found by a listing: seldom enough of them to matter (shown as possible).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from underfed.audit.finding import Hit, Sure
from underfed.audit.rule import AuditRule, Code
from underfed.audit.scopes import own_values

_BIG = (
    "json.load",
    "json.loads",
    "pickle.load",
    "to_dict",
    "readlines",
    "csv.reader",
    "csv.DictReader",
    "yaml.safe_load",
)


def check(code: Code) -> Iterator[Hit]:
    """Find lists of objects on a Dataset that `__getitem__` indexes."""
    for cls in code.module.class_of.values():
        get = cls.methods.get("__getitem__")
        if get is None or not code.project.is_dataset(cls):
            continue
        used = {
            node.value.attr
            for node in ast.walk(get.node)
            if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and _is_self(node.value.value)
        }
        for name, values in own_values(cls).items():
            if name not in used or len(values) != 1:
                continue
            found = _objects(code, cls.node, name, values[0])
            if found is not None:
                what, sure, node = found
                yield Hit(node, f"self.{name} holds {what}: forked workers copy their memory page by page", sure)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _objects(code: Code, cls: ast.ClassDef, name: str, value: ast.expr) -> tuple[str, Sure, ast.AST] | None:
    if isinstance(value, ast.Call):
        called = code.module.called(value) or code.method_name(value)
        if called in _BIG or code.method_name(value) in {"to_dict", "readlines"}:
            return f"the objects of {called}()", "likely", value
        return None
    element: ast.expr | None = value.elt if isinstance(value, ast.ListComp) else None
    where: ast.AST = value
    if isinstance(value, ast.List) and not value.elts:
        for node in ast.walk(cls):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
                if ast.unparse(node.func.value) == f"self.{name}" and node.args:
                    element, where = node.args[0], node
    if element is None:
        return None
    inner = code.module.called(element)
    if inner.startswith("torch.") and inner.rpartition(".")[2] in {
        "tensor",
        "from_numpy",
        "load",
        "as_tensor",
        "zeros",
    }:
        return "one tensor a sample", "likely", where
    if isinstance(element, ast.Dict):
        return "one dictionary a sample", "likely", where
    return "one Python object a sample", "possible", where


RULE = AuditRule(
    id="X42",
    name="python-objects-in-dataset",
    settle="`underfed run`: private memory of the workers, rising over an epoch",
    doc=__doc__ or "",
    check=check,
)
