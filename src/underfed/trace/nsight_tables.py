"""The tables of an Nsight Systems export, as columns of a Timeline for each process.

Tables and columns are created only where there is something to hold, and differ between versions; a cell can hold any
type. Correlation numbers count within a process, so processes must not be mixed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from underfed.errors import UsageError
from underfed.timeline import model as m
from underfed.trace.columns import DTYPES, HOST_COLUMNS, OPERATOR_COLUMNS, Numbering, joined_where
from underfed.trace.source import shown

_ROWS = 200_000
_NAME_MOST = 2048
_THREAD_BITS = 24
#: Times outside of +-126 years and events longer than a day are not real.
_MOST_NS, _LONGEST_NS = 4_000_000_000_000_000_000, 100_000_000_000_000
_PUSH_POP, _START_END = 59, 60
_RANGES: dict[str, int] = {"NvtxPushPopRange": _PUSH_POP, "NvtxStartEndRange": _START_END}
_VERSION = re.compile(r"_v\d{3,}$")
#: What torch.autograd.profiler.emit_nvtx adds to a name.
_NVTX_ARGS = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*$", re.DOTALL)
_NVTX_SIZES = re.compile(r", sizes = (\[[\[\], 0-9]{1,2000}\])")
_OPERATOR = re.compile(r"^(?:aten|c10d|prims|torchvision|quantized|autograd)::|^autograd::|Backward\d*$")
_COPY = re.compile(r"CUDA_MEMCPY_KIND_(?:UVM_)?([HDP])TO([HDP])$")
#: Numbers of ENUM_CUDA_MEMCPY_OPER, which follow CUPTI's, for exports without that table.
_COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}
_MEMORY = re.compile(r"CUDA_MEMOPR_MEMORY_KIND_(\w+)$")
_FEW_PROBLEMS = 3


@dataclass
class _Process:
    """What has been collected of one process."""

    device: list[dict[str, NDArray[Any]]] = field(default_factory=list)
    host: list[dict[str, NDArray[Any]]] = field(default_factory=list)


class Export:
    """One open export."""

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self.database, self.path = database, path
        self.columns = self._schema()
        self.names = Numbering()
        self.threads = Numbering()
        self.shapes = Numbering()
        self.processes: dict[int, _Process] = {}
        self.strings: dict[int, str] = {}
        self.unusable = self.backwards = 0

    def _schema(self) -> dict[str, set[str]]:
        tables = self.database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        known = {}
        for (name,) in tables:
            if isinstance(name, str) and re.fullmatch(r"\w+", name):
                found = self.database.execute(f'PRAGMA table_info("{name}")').fetchall()
                known[name] = {row[1] for row in found}
        return known

    def timelines(self) -> list[m.Timeline]:
        """Return one Timeline for each process that used a GPU, in the order of process ids; may raise UsageError."""
        if "StringIds" not in self.columns or not any(
            name.startswith("CUPTI_ACTIVITY_KIND_") or name == "NVTX_EVENTS" for name in self.columns
        ):
            raise UsageError(
                f"{shown(self.path)} is an SQLite file without Nsight's tables; `nsys export --type sqlite` writes one "
                "that can be read"
            )
        self._kernels()
        self._copies()
        self._sets()
        self._graphs()
        used = [number for number, process in self.processes.items() if process.device]
        self._calls()
        self._ranges()
        if not used:
            raise UsageError(f"{shown(self.path)} holds no GPU work: record with `nsys profile --trace=cuda,nvtx`")
        about, limits = self._about(), self._limits()
        return [self._timeline(self.processes[number], number, about, limits) for number in sorted(used)]

    def _select(self, table: str, wanted: Sequence[str], where: str = "") -> Iterator[NDArray[np.int64]]:
        """Yield rows of whole numbers, -1 for a column or a value that is not there."""
        has = self.columns.get(table)
        if has is None or not {"start", "end"} <= has:
            return
        # Any cell of an SQLite table can hold any type; a cast makes it a number. Names come from this module alone.
        parts = [f'COALESCE(CAST("{one}" AS INTEGER), -1)' if one in has else "-1" for one in wanted]
        cursor = self.database.execute(f'SELECT {", ".join(parts)} FROM "{table}" {where}')  # noqa: S608
        while rows := cursor.fetchmany(_ROWS):
            yield np.array(rows, np.int64).reshape(len(rows), len(wanted))

    def _usable(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        start, end = rows[:, 0], rows[:, 1]
        good = (start >= 0) & (start < _MOST_NS) & (end > -_MOST_NS) & (end < _MOST_NS)
        good[good] &= np.abs(end[good] - start[good]) < _LONGEST_NS
        self.unusable += int((~good).sum())
        kept: NDArray[np.int64] = rows[good]
        self.backwards += int((kept[:, 1] < kept[:, 0]).sum())
        return kept

    def _device(self, table: str, extra: str | None, kind: int, name: Callable[[NDArray[np.int64]], Any]) -> None:
        wanted = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes"]
        for raw in self._select(table, [*wanted, *([extra] if extra else []), "copyKind", "srcKind", "dstKind"]):
            rows = self._usable(raw)
            named = name(rows[:, 7:])
            owners = self._owners(rows[:, 5])
            for process in np.unique(owners).tolist():
                mine = owners == process
                taken = rows[mine]
                self.processes.setdefault(process, _Process()).device.append(
                    {
                        "start": taken[:, 0],
                        "end": taken[:, 1],
                        "kind": np.full(len(taken), kind, np.uint8),
                        "device": np.clip(taken[:, 2], -1, 1 << 30).astype(np.int32),
                        "stream": taken[:, 3],
                        "correlation": taken[:, 4],
                        "name": named[mine],
                        "bytes": taken[:, 6],
                    }
                )

    def _owners(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Process of each row; all are one where the export does not say which process its GPU work belongs to."""
        said = "globalPid" in self.columns.get("CUPTI_ACTIVITY_KIND_KERNEL", {"globalPid"})
        return numbers >> _THREAD_BITS if said else np.zeros_like(numbers)

    def _numbered(self, texts: Sequence[str]) -> NDArray[np.int32]:
        return np.array([self.names[text[:_NAME_MOST]] for text in texts], np.int32)

    def _text(self, numbers: NDArray[np.int64]) -> list[str]:
        """Texts of StringIds, loaded as they are asked for."""
        unknown = [one for one in np.unique(numbers).tolist() if one not in self.strings]
        for one in unknown:
            found = self.database.execute("SELECT value FROM StringIds WHERE id = ?", (one,)).fetchone()
            self.strings[one] = str(found[0]) if found is not None and found[0] is not None else ""
        return [self.strings[one] for one in numbers.tolist()]

    def _kernels(self) -> None:
        has = self.columns.get("CUPTI_ACTIVITY_KIND_KERNEL", set())
        name = "demangledName" if "demangledName" in has else "shortName"
        self._device("CUPTI_ACTIVITY_KIND_KERNEL", name, m.KERNEL, lambda more: self._numbered(self._text(more[:, 0])))

    def _copies(self) -> None:
        ways = {
            number: f"{found[1]}to{found[2]}"
            for number, name in self._enum("ENUM_CUDA_MEMCPY_OPER").items()
            if (found := _COPY.search(name))
        } or _COPY_KINDS
        memory = {
            number: found[1].replace("_", " ").capitalize()
            for number, name in self._enum("ENUM_CUDA_MEM_KIND").items()
            if (found := _MEMORY.search(name))
        }

        def name(more: NDArray[np.int64]) -> NDArray[np.int32]:
            # As the other profilers of NVIDIA's counters name them, so that one reader of names does for all.
            return self._numbered(
                [
                    f"Memcpy {ways.get(way, 'unknown')} "
                    f"({memory.get(source, 'Unknown')} -> {memory.get(target, 'Unknown')})"
                    for way, source, target in more.tolist()
                ]
            )

        self._device("CUPTI_ACTIVITY_KIND_MEMCPY", None, m.MEMCPY, name)

    def _sets(self) -> None:
        number = self.names["Memset"]
        self._device("CUPTI_ACTIVITY_KIND_MEMSET", None, m.MEMSET, lambda more: np.full(len(more), number, np.int32))

    def _graphs(self) -> None:
        """A graph that was recorded as a whole, which is how nsys records them unless told otherwise."""
        number = self.names["CUDA graph, recorded as a whole"]
        self._device(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", None, m.KERNEL, lambda more: np.full(len(more), number, np.int32)
        )

    def _enum(self, table: str) -> dict[int, str]:
        if not {"id", "name"} <= self.columns.get(table, set()):
            return {}
        rows = self.database.execute(f'SELECT id, name FROM "{table}"').fetchall()  # noqa: S608 - a name of this module
        return {number: name for number, name in rows if isinstance(number, int) and isinstance(name, str)}

    def _host(
        self,
        rows: NDArray[np.int64],
        texts: list[str],
        kinds: NDArray[np.uint8],
        links: Any,
        more: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    ) -> None:
        names = self._numbered(texts)
        threads = np.array([self.threads[one] for one in rows[:, 2].tolist()], np.int32)
        owners = self._owners(rows[:, 2])
        for process in np.unique(owners).tolist():
            mine = owners == process
            if process not in self.processes:
                continue
            self.processes[process].host.append(
                {
                    "start": rows[mine, 0],
                    "end": rows[mine, 1],
                    "kind": kinds[mine],
                    "thread": threads[mine],
                    "name": names[mine],
                    "correlation": links[mine],
                    **{name: column[mine] for name, column in more.items()},
                }
            )

    def _calls(self) -> None:
        wanted = ("start", "end", "globalTid", "correlationId", "nameId")
        for raw in self._select("CUPTI_ACTIVITY_KIND_RUNTIME", wanted):
            rows = self._usable(raw)
            texts = [_VERSION.sub("", text) for text in self._text(rows[:, 4])]
            self._host(rows, texts, np.full(len(rows), m.RUNTIME, np.uint8), rows[:, 3])

    def _ranges(self) -> None:
        has = self.columns.get("NVTX_EVENTS", set())
        kinds = [number for number, name in self._enum("ENUM_NSYS_EVENT_TYPE").items() if name in _RANGES]
        where = f'WHERE "eventType" IN ({", ".join(map(str, kinds or _RANGES.values()))})' if "eventType" in has else ""
        texts_of = self._range_texts(where)
        for raw in self._select("NVTX_EVENTS", ("start", "end", "globalTid", "textId"), where):
            texts = [next(texts_of) for _ in range(len(raw))]
            # A range that never ended has no end; what it covers is not known.
            good = (raw[:, 0] >= 0) & (raw[:, 1] >= raw[:, 0]) & (raw[:, 1] < raw[:, 0] + _LONGEST_NS)
            rows, texts = raw[good], [text for text, fine in zip(texts, good.tolist(), strict=True) if fine]
            known = self._text(rows[:, 3])
            whole = [text or other for text, other in zip(texts, known, strict=True)]
            named = [_NVTX_ARGS.sub("", text) for text in whole]
            kinds_of = np.array([m.OPERATOR if _OPERATOR.search(name) else m.ANNOTATION for name in named], np.uint8)
            sizes = [_NVTX_SIZES.search(text) for text in whole]
            shapes = np.array([self.shapes[one[1]] if one else m.MISSING for one in sizes], np.int32)
            more = {"shape": shapes} if (shapes >= 0).any() else {}
            self._host(rows, named, kinds_of, np.full(len(rows), m.MISSING, np.int64), more)

    def _range_texts(self, where: str) -> Iterator[str]:
        if "text" not in self.columns.get("NVTX_EVENTS", set()):
            while True:
                yield ""
        for (text,) in self.database.execute(f"SELECT text FROM NVTX_EVENTS {where}"):  # noqa: S608 - as in _select
            yield text[:_NAME_MOST] if isinstance(text, str) else ""

    def _about(self) -> dict[str, Any]:
        names: dict[int, str] = {}
        capability: tuple[int, int] | None = None
        gpus = self._rows("TARGET_INFO_GPU", ("id", "name", "computeMajor", "computeMinor"))
        for number, name, major, minor in gpus:
            if isinstance(number, int) and isinstance(name, str):
                names[number] = name[:128]
            if isinstance(major, int) and isinstance(minor, int):
                capability = (major, minor)
        # A process counts the devices that it may see; the export says which card each of them is.
        cards: dict[tuple[int, int], str] = {}
        for gpu, device, pid in self._rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid")):
            if gpu in names and isinstance(device, int) and isinstance(pid, int):
                cards[pid, device] = names[gpu]
        base = [row[0] for row in self._rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))]
        known = base[0] if base and isinstance(base[0], int) and 0 <= base[0] < _MOST_NS else 0
        return {"names": names, "cards": cards, "capability": capability, "base": known}

    def _rows(self, table: str, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        has = self.columns.get(table)
        if has is None:
            return []
        parts = ", ".join(f'"{one}"' if one in has else "NULL" for one in wanted)
        return self.database.execute(f'SELECT {parts} FROM "{table}"').fetchmany(4096)  # noqa: S608 - as in _select

    def _limits(self) -> list[str]:
        limits = []
        if self.unusable:
            limits.append(f"{self.unusable} events without a usable time were left out")
        if self.backwards:
            limits.append(f"{self.backwards} events end before they start and count as empty")
        if "NVTX_EVENTS" not in self.columns:
            limits.append("no NVTX ranges: steps, operators and the loader cannot be told apart in this report")
        if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in self.columns:
            limits.append(
                "CUDA graphs were recorded as a whole; nsys profile --cuda-graph-trace=node records their parts"
            )
        said = [str(row[0]) for row in self._rows("DIAGNOSTIC_EVENT", ("text",)) if row[0]]
        lost = [text for text in said if re.search(r"lost|dropped|incomplete|not all", text, re.IGNORECASE)]
        limits += [f"nsys says: {' '.join(shown(text).split())[:160]}" for text in lost[:_FEW_PROBLEMS]]
        return limits

    def _timeline(self, process: _Process, number: int, about: dict[str, Any], limits: list[str]) -> m.Timeline:
        # The lower 24 bits of a process's part are its number on the machine.
        pid = number & ((1 << _THREAD_BITS) - 1)
        cards = {device: name for (owner, device), name in about["cards"].items() if owner == pid}
        device = m.DeviceEvents(**{name: _joined(process.device, name) for name in _DEVICE})
        columns = {name: _joined(process.host, name) for name in _HOST}
        columns |= {name: joined_where(process.host, name) for name in OPERATOR_COLUMNS}
        host = m.HostEvents(**columns)
        return m.Timeline(
            device=device,
            host=host,
            names=tuple(self.names),
            threads=tuple((str(one >> _THREAD_BITS), str(one & ((1 << _THREAD_BITS) - 1))) for one in self.threads),
            base_ns=about["base"],
            device_names=cards or about["names"],
            capability=about["capability"],
            events=device.start.size + host.start.size,
            limits=tuple(limits),
            shapes=tuple((dims, "") for dims in self.shapes),
        )


_DEVICE = tuple(m.DeviceEvents.__dataclass_fields__)
_HOST = HOST_COLUMNS


def _joined(parts: Sequence[dict[str, NDArray[Any]]], name: str) -> NDArray[Any]:
    return np.concatenate([part[name] for part in parts]) if parts else np.empty(0, DTYPES.get(name, np.int64))
