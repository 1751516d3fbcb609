"""The fix of every rule as code for plain PyTorch, HF Trainer and Lightning: it parses, and its names are real ones."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from rule_cases import SPEAKS

from underfed.playbook.registry import RULES, find
from underfed.playbook.rule import Rule
from underfed.report.rulepage import sections_of

LABELS = ("plain PyTorch:", "HF Trainer:", "Lightning:")
#: What a line without code of its own says instead: where the plain fix goes, or that no code does it.
REASONS = (
    "nothing in the script changes",
    "the same",
    "return that DataLoader",
    "no switch",
    "sets worker_init_fn itself",
)
EVERY = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
#: Where the names that snippets call are defined; a callable of the user's own is not listed.
HOMES = {
    "DataLoader": "torch.utils.data",
    "DistributedDataParallel": "torch.nn.parallel",
    "FullyShardedDataParallel": "torch.distributed.fsdp",
    "BackwardPrefetch": "torch.distributed.fsdp",
    "TrainingArguments": "transformers",
    "TrainerCallback": "transformers",
    "AutoModel": "transformers",
    "DataCollatorWithPadding": "transformers",
    "ModelCheckpoint": "lightning.pytorch.callbacks",
    "EMAWeightAveraging": "lightning.pytorch.callbacks",
    "DeviceStatsMonitor": "lightning.pytorch.callbacks",
    "DDPStrategy": "lightning.pytorch.strategies",
    "FSDPStrategy": "lightning.pytorch.strategies",
    "AsyncCheckpointIO": "lightning.pytorch.plugins.io",
}
MODULES = {"torch": "torch", "F": "torch.nn.functional", "nn": "torch.nn", "gc": "gc", "os": "os"}


def fix_lines(rule: Rule) -> list[str]:
    return dict(sections_of(rule.doc))["Fix"]


def spans(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield each code span of a rule's fix with the label of its line."""
    for line in fix_lines(rule):
        label = next((label for label in LABELS if line.startswith(label)), "")
        for span in re.findall(r"`([^`]+)`", line):
            yield label, span


def parsed(code: str) -> ast.Module:
    """Parse a span; a call's `...` among arguments stands for those that stay as they are."""
    code = code.replace("(..., ", "(")
    return ast.parse(code if not re.match(r"(with|if|for)\b.*:$", code) else code + " ...")


@EVERY
def test_a_rule_has_its_fix_for_all_three(rule: Rule) -> None:
    for label in LABELS:
        lines = [line.partition(label)[2].strip() for line in fix_lines(rule) if line.startswith(label)]
        assert lines, f"{rule.id} has no line for {label}"
        for line in lines:
            assert "`" in line or line.startswith(REASONS), f"{rule.id}: {label} {line}"


@EVERY
def test_snippets_parse(rule: Rule) -> None:
    for _, span in spans(rule):
        if span.startswith("$ "):
            assert shlex.split(span[2:])
        else:
            parsed(span)


@pytest.mark.parametrize("name", SPEAKS)
def test_code_of_a_finding_parses(name: str) -> None:
    rule = find(name)
    assert rule is not None
    finding = rule.check(SPEAKS[name])
    assert finding is not None
    code = finding.fix.code
    if code and not re.match(r"[A-Z_]+=\S+$", code):
        parsed(code) if not re.match(r"(torchrun|python|pip|underfed) ", code) else shlex.split(code)


def looked_up(dotted: str, label: str) -> Any | None:
    """Return the object that a name in a snippet stands for, None for one of the user's own; raise where it is gone."""
    head, *rest = dotted.split(".")
    if head == "Trainer":
        found = getattr(
            importlib.import_module("transformers" if label == "HF Trainer:" else "lightning.pytorch"), head
        )
    elif head in HOMES:
        found = getattr(importlib.import_module(HOMES[head]), head)
    elif head in MODULES:
        found = importlib.import_module(MODULES[head])
    else:
        return None
    for part in rest:
        if inspect.ismodule(found) and not hasattr(found, part):
            with suppress(ModuleNotFoundError):
                importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)
    return found


def arguments(called: Callable[..., Any]) -> set[str] | None:
    """Names of a callable's arguments with those of its bases, or None where it takes any or does not say."""
    if isinstance(called, type) and is_dataclass(called):
        return {field.name for field in fields(called)}
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _dotted(node: ast.expr) -> str | None:
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else None


#: Wrappers that hand what they do not know on to torch's own.
HANDED_ON = {
    "DDPStrategy": "torch.nn.parallel.DistributedDataParallel",
    "FSDPStrategy": "torch.distributed.fsdp.FullyShardedDataParallel",
}


@EVERY
def test_what_snippets_call_exists_and_takes_these_arguments(rule: Rule) -> None:
    pytest.importorskip("torch")
    for package in ("transformers", "lightning"):
        pytest.importorskip(package)
    for label, span in spans(rule):
        if span.startswith("$ "):
            continue
        tree = parsed(span)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (dotted := _dotted(node)) is not None:
                looked_up(dotted, label)
            if not isinstance(node, ast.Call) or (dotted := _dotted(node.func)) is None:
                continue
            called = looked_up(dotted, label)
            known = arguments(called) if called is not None else None
            if known is None and dotted in HANDED_ON:
                known = _parameters(called) | _parameters(looked_up(HANDED_ON[dotted], label))
            if known is not None:
                given = {word.arg for word in node.keywords if word.arg}
                assert given <= known, f"{rule.id}: {dotted} takes no {given - known}"


def _parameters(called: Any) -> set[str]:
    return set(inspect.signature(called).parameters)


def test_a_name_or_argument_that_is_gone_is_noticed() -> None:
    pytest.importorskip("transformers")
    with pytest.raises(AttributeError):
        looked_up("torch.optim.AdaBogus", "plain PyTorch:")
    known = arguments(looked_up("TrainingArguments", "HF Trainer:"))
    assert known is not None and "tf32" in known and "tf33" not in known
