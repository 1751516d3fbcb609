"""Where values live: on the device, on the host, or as a batch that the loader has just made."""

from __future__ import annotations

import ast
import re
from typing import Literal

from underfed.audit.loops import is_evaluation_loop, is_step_call
from underfed.audit.module import Function, Module
from underfed.audit.scopes import inside

#: device: a tensor computed from a model or moved there; host: numbers, numpy, CPU tensors; batch: straight from a
#: loader, so on the CPU; unknown: not followed.
Home = Literal["device", "host", "batch", "unknown"]

_LOADER = re.compile(
    r"load|(^|[._])dl\b|dataloader|train_dl|batches|_iter\b|data_iter|trainset|train_set|dataset", re.IGNORECASE
)
_MODEL = re.compile(
    r"(^|[._])(\w*model\w*|net|\w*_net|net[A-Z]\w*|network|criterion\w*|\w*criterion|loss_fn\w*|loss_func\w*|\w*loss_f\w*|discriminator"
    r"|generator|encoder|decoder|backbone|critic|actor|policy|unet|vae|transformer|ddp|engine|teacher|student|[GD]|net[GD])(\[\w+\])?$"
)
_HOST_METHODS = frozenset(
    ["item", "tolist", "numpy", "cpu", "size", "dim", "numel", "__len__", "keys", "items", "shape"]
)
_HOST_ATTRIBUTES = frozenset(["shape", "ndim", "dtype", "device", "is_cuda", "requires_grad", "layout"])
_CREATE = frozenset(
    [
        "zeros",
        "ones",
        "full",
        "empty",
        "rand",
        "randn",
        "randint",
        "arange",
        "linspace",
        "eye",
        "tensor",
        "as_tensor",
        "from_numpy",
        "randperm",
    ]
)


def is_device(module: Module, node: ast.AST) -> bool:
    """Return whether an expression names a device other than the CPU."""
    if isinstance(node, ast.Constant):
        return (isinstance(node.value, str) and node.value.startswith(("cuda", "mps", "xpu"))) or (
            isinstance(node.value, int) and not isinstance(node.value, bool)
        )
    text = ast.unparse(node)
    if "cpu" in text.lower() and "cuda" not in text.lower():
        return False
    if module.qualified(node) in {"torch.long", "torch.float"} or "dtype" in text:
        return False
    return bool(re.search(r"device|cuda|(^|[._])(local_)?rank$|gpu|(^|[._])dev$|DEV$", text, re.IGNORECASE))


def moves(module: Module, node: ast.AST) -> bool:
    """Return whether a call moves a tensor to a device: `.cuda()`, `.to(device)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if node.func.attr == "cuda":
        return not (module.called(node).startswith("torch."))
    if node.func.attr != "to":
        return False
    first = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "device"), None)
    return first is not None and is_device(module, first)


class Homes:
    """The homes of a function's local names (or, without a function, of a module's own)."""

    def __init__(self, module: Module, function: Function | None) -> None:
        self.module = module
        self.names: dict[str, Home] = {}
        #: Names that a loop over a loader binds, also where they are moved later.
        self.batches: set[str] = set()
        scope: ast.AST = function.node if function else module.tree
        self._nodes = inside(scope)
        #: Names that hold a loader by what they are assigned.
        self._made = {
            target.id
            for node in self._nodes
            if isinstance(node, ast.Assign) and "DataLoader(" in ast.unparse(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        losses = {
            call.func.value.id
            for call in self._nodes
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr == "backward"
            and isinstance(call.func.value, ast.Name)
            and is_step_call(module, call)
        }
        losses |= {
            arg.id
            for call in self._nodes
            if isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in {"backward", "manual_backward"}
            for arg in call.args[:1]
            if isinstance(arg, ast.Name)
        }
        self.losses = losses
        for _ in range(2):  # names of a loop's end are used at its start
            for node in self._nodes:
                self._learn(node)
        for name in losses:
            self.names[name] = "device"

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            if self.over_loader(node):
                target = _batch_target(node)
                self._bind(target, "batch")
                self.batches |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
            else:
                self._bind(node.target, self.of(node.iter))
        elif isinstance(node, ast.Assign):
            home = self.of(node.value)
            if (
                isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Name)
                and node.value.func.id == "next"
            ):
                home = "batch" if _LOADER.search(ast.unparse(node.value)) else "unknown"
            for target in node.targets:
                self._bind(target, home)
                if home == "batch":
                    self.batches |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if self.of(node.value) == "device" and self.names.get(node.target.id) != "host":
                self.names[node.target.id] = "device"

    def over_loader(self, node: ast.For | ast.AsyncFor | ast.comprehension) -> bool:
        """Return whether a loop goes over a loader's batches."""
        text = ast.unparse(node.iter)
        if re.search(r"\.(items|keys|values|parameters|modules|named_\w+)\(", text) or text.startswith("range("):
            return False
        if _LOADER.search(text) or is_evaluation_loop(node):
            return True
        names = {part.id for part in ast.walk(node.iter) if isinstance(part, ast.Name)}
        return bool(names & self._made)

    def _bind(self, target: ast.AST, home: Home) -> None:
        if isinstance(target, ast.Name):
            before = self.names.get(target.id)
            # A name that is both (x = x.to(device)) is asked for by place; the later one wins in source order.
            self.names[target.id] = home if before is None or home != "unknown" else before
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._bind(part.value if isinstance(part, ast.Starred) else part, home)

    def of(self, node: ast.AST, depth: int = 0) -> Home:
        """Return an expression's home."""
        if depth > 12:
            return "unknown"
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.Dict | ast.DictComp):
            return "host"
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "unknown")
        if isinstance(node, ast.Attribute):
            return "host" if node.attr in _HOST_ATTRIBUTES else self.of(node.value, depth + 1)
        if isinstance(node, ast.Subscript):
            return self.of(node.value, depth + 1)
        if isinstance(node, ast.BinOp | ast.Compare | ast.UnaryOp | ast.Tuple | ast.List):
            return _strongest(
                self.of(part, depth + 1) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)
            )
        if isinstance(node, ast.IfExp):
            return _strongest([self.of(node.body, depth + 1), self.of(node.orelse, depth + 1)])
        if isinstance(node, ast.Call):
            return self._call(node, depth + 1)
        return "unknown"

    def _call(self, node: ast.Call, depth: int) -> Home:
        if moves(self.module, node):
            return "device"
        name = self.module.called(node)
        if name.startswith(("numpy.", "math.", "random.", "sklearn.", "len", "range", "float", "int", "time.")):
            return "host"
        if name in {"zip", "enumerate", "list", "tuple", "reversed", "sorted"}:
            return _strongest(self.of(arg, depth) for arg in node.args)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _HOST_METHODS:
            return "host"
        if name.startswith("torch."):
            device = next((k.value for k in node.keywords if k.arg == "device"), None)
            if device is not None:
                return "device" if is_device(self.module, device) else "host"
            if name.rpartition(".")[2] in _CREATE:
                return "host"
            return _strongest(self.of(arg, depth) for arg in node.args)
        if _MODEL.search(ast.unparse(node.func)) and (node.args or node.keywords):
            return "device"
        if isinstance(node.func, ast.Attribute):
            return self.of(node.func.value, depth)
        return "unknown"


def _batch_target(node: ast.For | ast.AsyncFor | ast.comprehension) -> ast.AST:
    target = node.target
    if "enumerate(" in ast.unparse(node.iter) and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        return target.elts[1]
    return target


def _strongest(homes: object) -> Home:
    found = set(homes)  # type: ignore[call-overload]
    for home in ("device", "batch", "unknown"):
        if home in found:
            return home
    return "host" if found else "unknown"
