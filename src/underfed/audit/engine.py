"""From paths to findings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from underfed.audit import ignore
from underfed.audit.finding import ORDER, AuditFinding, Edit, Hit, Result, Unknown, Unread
from underfed.audit.heat import Heat, per_sample
from underfed.audit.loops import Training
from underfed.audit.module import Module
from underfed.audit.parallel import processes, spread
from underfed.audit.pause import collector_paused
from underfed.audit.project import Project
from underfed.audit.registry import RULES
from underfed.audit.rule import AuditRule, Code, Whole
from underfed.audit.settings import read_settings
from underfed.audit.sources import Source, load, modules_beside
from underfed.audit.values import Values

#: Modules that speak of none of these have nothing for a rule to look at.
_TRAINS = re.compile(r"torch|lightning|transformers|accelerate|cuda|CUDA|NUM_THREADS|cv2")
_OTHERS = frozenset({"jax", "flax", "optax", "tensorflow", "keras", "mindspore", "paddle", "mxnet"})
_TOO_DEEP = "is nested too deeply to follow"
#: A suppression that silences nothing.
UNUSED = "U0"


def audit(
    paths: Sequence[Path],
    *,
    rules: Sequence[AuditRule] = RULES,
    exclude: tuple[str, ...] = (),
    jobs: int = 1,
) -> Result:
    """Audit files and folders, by up to `jobs` processes; raises UsageError for a path that is not there.

    A file that cannot be read or parsed becomes a line of `unread`, and the rest goes on.
    """
    sources, result = load(paths, exclude)
    return judge(sources, result, rules, modules_beside(sources, paths), jobs=jobs)


@dataclass
class Judged:
    """What was found in one file; `unread` says why it could not be judged."""

    findings: list[AuditFinding] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    unread: str | None = None


def judge(
    sources: Sequence[Source],
    result: Result,
    rules: Sequence[AuditRule],
    context: Iterable[Module] = (),
    *,
    jobs: int = 1,
) -> Result:
    """Run rules on what was read; `context` modules are known but not reported on.

    With `jobs` above 1, that many forks of this process judge the files where these are long enough; the result is the
    same. Programs with threads should leave it at 1.
    """
    with collector_paused():
        whole, kept = _whole(sources, result, list(context))
        judged = {rule.id for rule in rules}

        def one(at: int) -> Judged:
            return _judge(whole, kept[at], rules, judged)

        sizes = [len(source.module.source) for source in kept]
        forks = processes(result.lines, jobs)
        answers = spread(one, sizes, forks) if forks > 1 else [one(at) for at in range(len(kept))]
    for source, answer in zip(kept, answers, strict=True):
        if isinstance(answer, str) or answer.unread is not None:
            result.unread.append(Unread(source.shown, answer if isinstance(answer, str) else str(answer.unread)))
            continue
        result.findings += answer.findings
        result.unknown += answer.unknown
    result.findings.sort(key=lambda finding: finding.key)
    result.unread.sort(key=lambda unread: unread.path)
    return result


def _whole(sources: Sequence[Source], result: Result, context: list[Module]) -> tuple[Whole, list[Source]]:
    """Return what is known of all files together, and the files that are not nested too deeply to be followed."""
    try:
        return _known([source.module for source in sources] + context, sources), list(sources)
    except RecursionError:
        deepest = max([source.module for source in sources] + context, key=lambda module: module.depth)
    result.unread += [Unread(source.shown, _TOO_DEEP) for source in sources if source.module is deepest]
    kept = [source for source in sources if source.module is not deepest]
    return _whole(kept, result, [module for module in context if module is not deepest])


def _known(modules: list[Module], sources: Sequence[Source]) -> Whole:
    folders = {Path(module.path).parent for module in modules if not module.path.endswith(".ipynb")}
    folders |= {source.path.parent for source in sources}
    project = Project(modules, read_settings(folders, _primaries(modules)))
    training = Training(project)
    values = Values(project)
    heat, samples = Heat(project, training, values), per_sample(project, training, values)
    return Whole(project, training, values, heat, samples)


def _judge(whole: Whole, source: Source, rules: Sequence[AuditRule], judged: set[str]) -> Judged:
    code = Code(whole, source.module)
    hits: list[tuple[AuditRule, Hit]] = []
    try:
        for rule in rules if _is_told_of(whole, source.module) else ():
            hits += [(rule, hit) for hit in rule.check(code)]
        return Judged(_findings(source, hits, judged), code.unknown)
    except RecursionError:
        return Judged(unread=_TOO_DEEP)
    except Exception as error:
        return Judged(unread=f"cannot be judged, by a fault of underfed: {type(error).__name__}: {error}")


def _is_told_of(whole: Whole, module: Module) -> bool:
    """Return whether the rules have anything to say about a module: not where another library computes."""
    tops = {name.partition(".")[0] for name in module.imports.values()}
    if tops & _OTHERS and "torch" not in tops:
        return False
    return bool(_TRAINS.search(module.source) or whole.heat.of(module))


def _findings(source: Source, hits: list[tuple[AuditRule, Hit]], judged: set[str]) -> list[AuditFinding]:
    best: dict[tuple[str, int], AuditFinding] = {}
    for rule, hit in hits:
        found = _finding(source, rule, hit)
        key = (rule.id, source.module.span(hit.node)[0])
        before = best.get(key)
        if before is None or ORDER.index(found.sure) < ORDER.index(before.sure):
            best[key] = found
    ignores = ignore.comments(source.module.source)
    kept = ignore.split(sorted(best.values(), key=lambda f: f.key), ignores)
    for one in ignores:
        unused = one.unused
        if unused is not None and (not one.rules or one.rules <= judged or not one.rules <= {r.id for r in RULES}):
            kept.append(_unused(source, one, unused))
    return kept


def _finding(source: Source, rule: AuditRule, hit: Hit) -> AuditFinding:
    module = source.module
    start, end = module.span(hit.node)
    line, column = module.position(start)
    end_line, end_column = module.position(end)
    found = AuditFinding(
        rule=rule.id,
        name=rule.name,
        path=source.shown,
        line=line,
        column=column,
        end_line=end_line,
        end_column=end_column,
        message=hit.message,
        sure=hit.sure,
        code=module.line(line).strip(),
        why=rule.why,
        settle=rule.settle,
        source_line=line,
        fix=None if hit.fix and any(_takes_comment(module, edit) for edit in hit.fix.edits) else hit.fix,
    )
    return _in_cell(source, found)


def _takes_comment(module: Module, edit: Edit) -> bool:
    """Return whether an edit would take a comment away with what it replaces."""
    return "#" in module.source[edit.start : edit.end] and "#" not in edit.text


def _unused(source: Source, one: ignore.Ignore, text: str) -> AuditFinding:
    found = AuditFinding(
        rule=UNUSED,
        name="unused-suppression",
        path=source.shown,
        line=one.line,
        column=one.column,
        end_line=one.line,
        end_column=one.column,
        message=f"unused suppression: {text}",
        sure="certain",
        code=source.module.line(one.line).strip(),
        why="A suppression that silences nothing hides the next finding on its line.",
        settle="nothing: remove it",
        source_line=one.line,
    )
    return _in_cell(source, found)


def _in_cell(source: Source, found: AuditFinding) -> AuditFinding:
    if source.notebook is None:
        return found
    cell, line = source.notebook.place(found.line)
    return replace(found, cell=cell, line=line, end_line=line + found.end_line - found.line)


def _primaries(modules: Iterable[Module]) -> frozenset[str]:
    """Return the names of configurations that `@hydra.main` asks for."""
    found = set()
    for module in modules:
        for call in module.calls:
            if module.called(call) == "hydra.main":
                for keyword in call.keywords:
                    if keyword.arg == "config_name" and isinstance(keyword.value, ast.Constant):
                        found.add(str(keyword.value.value).removesuffix(".yaml"))
    return frozenset(found)
