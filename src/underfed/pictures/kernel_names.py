"""Names of kernels as people read them: what the kernel does and on what, without namespaces and argument lists."""

from __future__ import annotations

import re

from underfed.report.text import clean

_MOST = 96
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::")
_NAMESPACE = re.compile(r"\b(?:[A-Za-z_]\w*::)+(?=[A-Za-z_~])")
_RETURNED = re.compile(r"^(?:std::)?enable_if<.*?>::type |^(?:void|static|__global__) ")
_WORD = re.compile(r"[A-Za-z_]\w*")
#: Names that stand for a whole family: what such a kernel does is only said by its template arguments.
_FAMILY = re.compile(
    r"elementwise_kernel|^reduce_kernel$|multi_tensor_apply_kernel|^Kernel2?$|^device_kernel$", re.ASCII
)
#: Words of template arguments that say how, not what: wrappers, containers, types.
_HOW = re.compile(
    r"(?:Binary|[AB]?Unary)Functor$|ReduceOp$|func_wrapper_t|Metadata$|gpu_kernel_impl|TensorIterator|array$"
    r"|OffsetCalculator|^(?:operator|lambda|const|unsigned|int|long|bool|char|void|float|double|short|true|false|Scalar)$"
    r"|(?:BFloat16|Half|bfloat16\w*|half\w*)$|^(?:detail|conv|gemm|kernel|threadblock|device|Params|ul|u)$",
    re.ASCII,
)
_TYPES = (
    (re.compile(r"BFloat16|bfloat16"), "bf16"),
    (re.compile(r"\bHalf\b|__half|\bhalf_t\b"), "fp16"),
    (re.compile(r"\bfloat\b"), "fp32"),
    (re.compile(r"\bdouble\b"), "fp64"),
)


def short(name: str) -> str:
    """Return a kernel's name in one short line: its own name, for families what it applies, and its first type."""
    line = clean(name, ascii_only=False)
    plain = _mangled(line) if line.startswith("_Z") else line
    head, rest = _split(_NAMESPACE.sub("", _RETURNED.sub("", _ANONYMOUS.sub("", plain))))
    said = head
    if _FAMILY.search(head):
        what = next((word for word in _WORD.findall(rest) if not _HOW.search(word)), None)
        said = head if what is None else what if head.startswith("Kernel") else f"{head}: {what}"
    kind = next((label for pattern, label in _TYPES if pattern.search(rest)), None)
    if kind and rest.startswith("<"):
        said += f", {kind}"
    return said if len(said) <= _MOST else said[: _MOST - 1] + "…"


def _split(name: str) -> tuple[str, str]:
    """Return the name in front of template arguments or parameters, and all from there on."""
    found = re.search(r"[<(]", name)
    at = found.start() if found else len(name)
    head = name[:at].strip()
    return (head, name[at:]) if head else (name, "")


def _mangled(name: str) -> str:
    """Return the identifiers of a mangled C++ name: the first two as its own, the rest as if they were arguments."""
    words: list[str] = []
    at = end = 0
    while (digits := re.compile(r"\d+").search(name, at)) is not None:
        size, begin = int(digits[0][:4]), digits.end()
        word = name[begin : begin + size]
        # Behind a letter that ends no identifier the number is a value, as the 64 of `Li64E` is.
        value = digits.start() != end and name[digits.start() - 1].islower()
        if size and not value and len(word) == size and word[0].isidentifier():
            words.append(word)
            at = end = begin + size
        else:
            at = begin
    if not words:
        return name
    own = next((at for at, word in enumerate(words) if word.lower() != "kernel" and "kernel" in word.lower()), None)
    if own is None:
        own = (
            words.index("Kernel")
            if "Kernel" in words
            else max(range(len(words)), key=lambda at: (at < 4, len(words[at])))
        )
    return f"{words[own]}<{', '.join(words[own + 1 :])}>"
