"""Which files of a run are taken, and what stands in the way of taking them."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from underfed.carry.names import OURS, shown
from underfed.carry.runs import Run, inside_of

Links = Literal["follow", "refuse"]

_WEIGHTS = ("pt", "pth", "ckpt", "tar", "bin", "safetensors", "pkl", "npz", "h5", "keras", "msgpack", "onnx")
#: What counts as the best checkpoint; a run without any needs `--take` or `--all`.
CHECKPOINTS = (
    *(f"*best*.{suffix}" for suffix in _WEIGHTS),
    "*best*/**",
    *(f"{folder}/*best*" for folder in ("checkpoint*", "ckpt*", "weights", "models")),
    "model*.safetensors",
    "pytorch_model*.bin",
    "adapter_model*",
)
#: Metrics, protocol or config, log.
BESIDE = (
    *("*best*", "*metrics*", "*results*.json", "*.log", "*log*.txt", "*log*.csv", "*log*.jsonl", "logs/**", "log/**"),
    *("protocol/**", "protocol*", "config/**", "configs/**", "conf/**", ".hydra/**", "*config*", "*.yaml", "*.yml"),
    *("*.toml", "args*.json", "*args*.bin", "*hparams*", "*params*.json", "tokenizer*", "vocab*", "merges.txt"),
    *("special_tokens_map.json", "*.safetensors.index.json", "*.bin.index.json"),
)
_LARGEST_INDEX = 64 << 20


@dataclass(frozen=True)
class Source:
    """A file to take: where it goes below the run's folder, where it is, and what it looked like when listed."""

    path: str
    real: str
    size: int
    mtime_ns: int
    mode: int
    allocated: int
    identity: tuple[int, int]


@dataclass
class Taken:
    """The files of a run; `wrong` makes the run unverified, `notes` do not."""

    files: dict[str, Source] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())


@dataclass(frozen=True)
class Choice:
    """What the user chose. `take` None is the default choice; `also` are patterns of files beside the run."""

    take: tuple[str, ...] | None = None
    everything: bool = False
    also: tuple[str, ...] = ()
    links: Links = "follow"


def take_files(run: Run, source: Path, choice: Choice, nested: set[str]) -> Taken:
    """List the files of a run. `nested` holds the paths (below SRC) of the other runs, which are not part of it."""
    taken = Taken()
    seen: list[str] = []
    wanted = _wanted(run, choice)
    _walk(run, source, str(run.folder), "", choice, nested, frozenset(), wanted, taken, seen)
    for pattern in choice.take or ():
        literal = not any(c in pattern for c in "*?[")
        if not any(_matches(path, (pattern,)) for path in seen):
            (taken.wrong if literal else taken.notes).append(f"--take {shown(pattern)}: nothing of that name")
    if choice.take is None and not choice.everything and not any(_matches(p, CHECKPOINTS) for p in taken.files):
        taken.wrong.append("no best checkpoint among its files; name what to take with --take, or take --all")
    for pattern in choice.also:
        _take_also(run, pattern, choice, taken)
    _check_shards(taken)
    return taken


def _wanted(run: Run, choice: Choice) -> tuple[str, ...] | None:
    if choice.everything:
        return None
    markers = tuple(glob.escape(marker) for marker in run.markers)
    return markers + (CHECKPOINTS + BESIDE if choice.take is None else choice.take)


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Say whether a path matches a pattern: without a slash by its own name at the top, `DIR/**` or `DIR` whole."""
    for pattern in patterns:
        head = pattern[:-3] if pattern.endswith("/**") else pattern.rstrip("/")
        depth = head.count("/") + 1
        parts = path.split("/")
        if len(parts) < depth or (len(parts) == depth and pattern.endswith("/**")):
            continue
        pairs = zip(parts, head.split("/"), strict=False)
        if all(fnmatch.fnmatchcase(part, glob_part) for part, glob_part in pairs):
            return True
    return False


def _walk(  # noqa: PLR0917 (recursive)
    run: Run,
    source: Path,
    folder: str,
    prefix: str,
    choice: Choice,
    nested: set[str],
    above: frozenset[str],
    wanted: tuple[str, ...] | None,
    taken: Taken,
    seen: list[str],
) -> None:
    real = os.path.realpath(folder)
    if real in above:
        taken.wrong.append(f"{shown(prefix.rstrip('/'))}: link that leads back to a folder above it")
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        taken.wrong.append(f"{shown(prefix or run.path)}: {error.strerror}")
        return
    for entry in entries:
        path, below = prefix + entry.name, f"{folder}/{entry.name}"
        if entry.name in OURS:
            continue
        chosen = wanted is None or _matches(path, wanted)
        link = entry.is_symlink()
        if link:
            if not chosen and not _leads_on(path, wanted):
                continue
            why = _bad_link(below, source, choice.links)
            if why:
                seen.append(path)
                taken.wrong.append(f"{shown(path)}: {why}")
                continue
        if _is_folder(entry):
            if link or os.path.relpath(below, source) not in nested:
                _walk(run, source, below, path + "/", choice, nested, above | {real}, wanted, taken, seen)
        elif chosen:
            seen.append(path)
            _add(path, below, taken)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link through a folder that may not be entered: said when the file cannot be looked at


def _leads_on(path: str, wanted: tuple[str, ...] | None) -> bool:
    """Say whether something below a link could be wanted."""
    return wanted is None or any(_matches(path + "/x", (w,)) or w.startswith(path + "/") for w in wanted)


def _bad_link(link: str, source: Path, links: Links) -> str | None:
    target = shown(os.readlink(link))  # noqa: PTH115 (a string)
    if links == "refuse":
        return f"link to {target}, and links are refused"
    real = os.path.realpath(link)
    if not inside_of(real, source):
        return f"link that leaves the source, to {target}"
    return None if os.path.exists(real) else f"dead link to {target}"  # noqa: PTH110 (a loop of links is dead too)


def _add(path: str, real: str, taken: Taken) -> None:
    try:
        state = os.stat(real)  # noqa: PTH116 (thousands of them)
    except OSError as error:
        taken.wrong.append(f"{shown(path)}: {error.strerror}")
        return
    if not stat.S_ISREG(state.st_mode):
        taken.notes.append(f"{shown(path)}: not a regular file, so there are no bytes to carry")
        return
    if path in taken.files:
        taken.wrong.append(f"{shown(path)}: two files would go by this name")
        return
    allocated = min(state.st_size, state.st_blocks * 512)
    identity = (state.st_dev, state.st_ino)
    taken.files[path] = Source(path, real, state.st_size, state.st_mtime_ns, state.st_mode, allocated, identity)


def _take_also(run: Run, pattern: str, choice: Choice, taken: Taken) -> None:
    """Take the files beside a run: a path from the run's parent folder, with `{name}` for the run's name."""
    filled = pattern.replace("{name}", glob.escape(run.name))
    base = glob.escape(str(run.folder.resolve().parent))
    hits = sorted(glob.glob(str(Path(base) / filled)))  # noqa: PTH207 (the pattern may be absolute or begin with ..)
    if not hits:
        taken.notes.append(f"--also {shown(pattern)}: nothing there")
    for hit in hits:
        path = Path(hit)
        if path.is_dir():
            taken.notes.append(f"--also {shown(pattern)}: {shown(path.name)} is a folder; name its files")
        elif path.is_symlink() and choice.links == "refuse":
            taken.wrong.append(f"{shown(path.name)}: link, and links are refused")
        else:
            _add(path.name, hit, taken)


def _check_shards(taken: Taken) -> None:
    """Hold the index of a sharded checkpoint against the files that are there."""
    for path, file in list(taken.files.items()):
        if not path.endswith(".index.json") or file.size > _LARGEST_INDEX:
            continue
        try:
            weights = json.loads(Path(file.real).read_bytes())["weight_map"]
            shards = {name for name in weights.values() if isinstance(name, str)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        prefix = path.rpartition("/")[0]
        for shard in sorted(shards):
            if (f"{prefix}/{shard}" if prefix else shard) not in taken.files:
                taken.wrong.append(f"{shown(path)} names {shown(shard)}, which is not among the files taken")
