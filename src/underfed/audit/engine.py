"""From paths to findings."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from underfed.audit import ignore
from underfed.audit.files import decode, read_bytes, source_files
from underfed.audit.finding import ORDER, AuditFinding, Hit, Result, Unread
from underfed.audit.heat import Heat, per_sample
from underfed.audit.loops import Training
from underfed.audit.module import Module
from underfed.audit.notebook import Notebook, read_notebook
from underfed.audit.project import Project
from underfed.audit.registry import RULES
from underfed.audit.rule import AuditRule, Code, Whole
from underfed.audit.settings import read_settings
from underfed.audit.values import Values

#: Modules that speak of none of these have nothing for a rule to look at.
_TRAINS = re.compile(r"torch|lightning|transformers|accelerate|cuda|CUDA|NUM_THREADS|cv2")
_MOST_CONTEXT = 200
#: A suppression that silences nothing.
UNUSED = "U0"


@dataclass
class Source:
    """A file that was read: its module, and how to write it back."""

    path: Path
    shown: str
    module: Module
    text: str
    encoding: str
    notebook: Notebook | None = None


def audit(paths: Sequence[Path], *, rules: Sequence[AuditRule] = RULES, exclude: tuple[str, ...] = ()) -> Result:
    """Audit files and folders; raises UsageError for a path that is not there.

    A file that cannot be read or parsed becomes a line of `unread`, and the rest goes on.
    """
    sources, result = load(paths, exclude)
    return judge(sources, result, rules, modules_beside(sources, paths))


def load(paths: Sequence[Path], exclude: tuple[str, ...] = ()) -> tuple[list[Source], Result]:
    """Read and parse all source files of some paths."""
    result = Result()
    sources: list[Source] = []
    for path in source_files(list(paths), exclude):
        result.files += 1
        try:
            source = read_source(path, path.as_posix(), _dotted(path, paths))
        except ValueError as error:
            result.unread.append(Unread(path.as_posix(), str(error)))
            continue
        result.lines += source.module.source.count("\n")
        sources.append(source)
    return sources, result


def read_source(path: Path, shown: str, name: str) -> Source:
    """Read and parse one file; raises ValueError with a reason that fits one line."""
    text, encoding = decode(read_bytes(path))
    book = read_notebook(text) if path.suffix == ".ipynb" else None
    module = parse(shown, name, book.source if book else text, is_package=path.name == "__init__.py")
    return Source(path, shown, module, text, encoding, book)


def parse(shown: str, name: str, source: str, *, is_package: bool = False) -> Module:
    """Parse source text; raises ValueError with a reason that fits one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of their literals: not what is asked for
            return Module(shown, name, source, is_package=is_package)
    except SyntaxError as error:
        raise ValueError(f"does not parse as Python 3: line {error.lineno or '?'}: {error.msg}") from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise ValueError("is nested too deeply to parse") from error


def judge(
    sources: Sequence[Source], result: Result, rules: Sequence[AuditRule], context: Iterable[Module] = ()
) -> Result:
    """Run rules on what was read; `context` modules are known but not reported on."""
    modules = [source.module for source in sources] + list(context)
    folders = {Path(module.path).parent for module in modules if not module.path.endswith(".ipynb")}
    folders |= {source.path.parent for source in sources}
    project = Project(modules, read_settings(folders, _primaries(modules)))
    training = Training(project)
    values = Values(project)
    heat, samples = Heat(project, training, values), per_sample(project, training, values)
    whole = Whole(project, training, values, heat, samples)
    for source in sources:
        code = Code(whole, source.module)
        hits: list[tuple[AuditRule, Hit]] = []
        try:
            for rule in rules if _TRAINS.search(source.module.source) or heat.of(source.module) else ():
                hits += [(rule, hit) for hit in rule.check(code)]
        except RecursionError:
            result.unread.append(Unread(source.shown, "is nested too deeply to follow"))
            continue
        result.findings += _findings(source, hits, {rule.id for rule in rules})
        result.unknown += code.unknown
    result.findings.sort(key=lambda finding: finding.key)
    return result


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
        fix=hit.fix,
    )
    return _in_cell(source, found)


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


def _dotted(path: Path, paths: Sequence[Path]) -> str:
    for top in paths:
        if top.is_dir() and path.is_relative_to(top):
            parts = list(path.relative_to(top).with_suffix("").parts)
            if (top / "__init__.py").exists():
                parts.insert(0, top.resolve().name)
            break
    else:
        parts = [path.stem]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts) or path.parent.name or "module"


def modules_beside(sources: Sequence[Source], paths: Sequence[Path]) -> list[Module]:
    """Parse modules beside a single named file that it imports, so that values and calls can be followed into them."""
    known = {source.path.resolve() for source in sources}
    found: list[Module] = []
    queue = [(source.path.parent, source.module) for source in sources if source.path in set(paths)]
    while queue and len(found) < _MOST_CONTEXT:
        folder, module = queue.pop()
        for dotted in {*module.imports.values(), *module.stars}:
            parts = dotted.split(".")
            for end in range(len(parts), 0, -1):
                base = folder.joinpath(*parts[:end])
                file = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
                if not file.is_file() or file.is_symlink() or file.resolve() in known:
                    continue
                known.add(file.resolve())
                try:
                    source = read_source(file, file.as_posix(), ".".join(parts[:end]))
                except (ValueError, OSError):
                    break
                found.append(source.module)
                queue.append((folder, source.module))
                break
    return found


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
