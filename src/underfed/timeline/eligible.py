"""Whether tensor cores could multiply what an operator multiplies, by the sizes and types of its inputs."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

#: `misaligned`: the type is right and a size is not, so the cores work slowly or on padded copies. `unknown` is what
#: the trace does not say.
Eligible: TypeAlias = Literal["yes", "misaligned", "no", "unknown"]
YES: Final = "yes"
MISALIGNED: Final = "misaligned"
NO: Final = "no"
UNKNOWN: Final = "unknown"

#: Where the two factors of an operator's product are among its inputs.
_FACTORS = {
    "aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::matmul": (0, 1), "aten::addmm": (1, 2), "aten::baddbmm": (1, 2),
    "aten::linear": (0, 1), "aten::_scaled_mm": (0, 1), "aten::_addmm_activation": (1, 2), "aten::addmm_": (1, 2),
}  # fmt: skip
#: Convolutions, by whether inputs or weights come first does not matter: both have channels behind the batch.
_CONVOLUTIONS = {
    "aten::conv1d": (0, 1), "aten::conv2d": (0, 1), "aten::conv3d": (0, 1), "aten::convolution": (0, 1),
    "aten::_convolution": (0, 1), "aten::cudnn_convolution": (0, 1), "aten::miopen_convolution": (0, 1),
    "aten::convolution_backward": (1, 2), "aten::cudnn_convolution_add_relu": (0, 1),
}  # fmt: skip
_HALF = frozenset({"c10::Half", "c10::BFloat16", "half", "bfloat16"})
_EIGHT = ("c10::Float8", "signed char", "unsigned char", "char")
#: Numbers of a type that fill the 16 bytes that the cores load at a time.
_ALIGN_HALF, _ALIGN_EIGHT, _ALIGN_FLOAT = 8, 16, 4
#: Cards whose cores multiply doubles.
_DOUBLE_CARDS = frozenset({(8, 0), (9, 0), (10, 0)})
_FIRST_CORES, _FIRST_TF32 = (7, 0), (8, 0)


@lru_cache(maxsize=4096)
def eligible(operator: str | None, dims: str | None, types: str | None, capability: tuple[int, int] | None) -> Eligible:
    """Tell whether tensor cores could do an operator's product.

    `dims` and `types` are JSON lists of its inputs'; `capability` is the card's, None where it is not NVIDIA's or not
    known. 32-bit products count as eligible where the card has TF32, which a setting allows.
    """
    places = _FACTORS.get(operator or "") or _CONVOLUTIONS.get(operator or "")
    sizes, kinds = _list(dims), _list(types)
    if places is None or sizes is None or kinds is None or max(places) >= min(len(sizes), len(kinds)):
        return UNKNOWN
    kind = {kinds[at] for at in places}
    if len(kind) != 1 or not all(_whole(sizes[at]) for at in places):
        return UNKNOWN
    if capability is not None and capability < _FIRST_CORES:
        return NO
    step = _alignment(str(kind.pop()), capability)
    if not isinstance(step, int):
        return step
    shared = [sizes[at] for at in places]
    numbers = [one[1] for one in shared if len(one) > 1] if operator in _CONVOLUTIONS else _product(shared)
    if not numbers:
        return UNKNOWN
    return YES if all(number % step == 0 for number in numbers) else MISALIGNED


def _product(factors: list[list[int]]) -> list[int]:
    """Return the sizes of a product that the cores load along: of each factor the last one, and of matrices both."""
    return [number for one in factors for number in one[-2:]] if all(factors) else []


def _alignment(kind: str, capability: tuple[int, int] | None) -> int | Eligible:
    if kind in _HALF:
        return _ALIGN_HALF
    if kind.startswith(_EIGHT):
        return _ALIGN_EIGHT
    if kind == "float":
        if capability is None:
            return UNKNOWN
        return _ALIGN_FLOAT if capability >= _FIRST_TF32 else NO
    if kind == "double":
        if capability is None:
            return UNKNOWN
        return 1 if capability in _DOUBLE_CARDS else NO
    return NO if kind.startswith(("c10::complex", "long", "int", "bool")) else UNKNOWN


def _list(text: str | None) -> list[Any] | None:
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _whole(sizes: Any) -> bool:
    return isinstance(sizes, list) and all(type(one) is int for one in sizes)
