"""Classes of host rows: what the host was at while the device had nothing to do."""

from __future__ import annotations

import re
from typing import Final

#: Causes of idle time, in the order in which a moment that fits several is given away: a call inside a wait for data
#: is what the host was really at, and so comes first.
ALLOCATOR: Final = "allocator"
SYNC: Final = "sync"
TRANSFER: Final = "transfer"
GC: Final = "gc"
COMPILE: Final = "compile"
STALL: Final = "stall"
DATA: Final = "data"
NAMED: Final = (ALLOCATOR, SYNC, TRANSFER, GC, COMPILE, STALL, DATA)
#: Causes that no row names: launches follow one another with less than 1 ms between them; operators run that launch
#: nothing for longer; nothing at all is recorded; the kernel was queued, and waited for another stream or the device
#: itself; no launch is recorded for the kernel that ends the gap.
LAUNCH: Final = "launch"
HOST: Final = "host"
SILENT: Final = "silent"
QUEUED: Final = "queued"
UNKNOWN: Final = "unknown"
CAUSES: Final = (*NAMED, LAUNCH, HOST, SILENT, QUEUED, UNKNOWN)

_LAUNCHES = re.compile(
    r"^(?:cu|cuda|hip)(?:Ext|Module)*(?:Launch|GraphLaunch|Memcpy|Memset|LaunchCooperative)|^hipExtLaunch|^hipCtxLaunch"
)
_RUNTIME: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"^(?:cuda|cu|hip)(?:Host)?(?:Malloc|Free|Alloc|Register|Unregister|MemAlloc|MemFree|MemCreate|MemMap)"
        ),
        ALLOCATOR,
    ),
    (re.compile(r"^(?:cuda|hip)(?:HostAlloc|HostRegister)|^cuMem(?:Alloc|Free|Create|Map|Release|Unmap)"), ALLOCATOR),
    (re.compile(r"Synchronize"), SYNC),
    (re.compile(r"^(?:cuda|hip)Memcpy$|^cuMemcpy(?:HtoD|DtoH)_v2$|^hipMemcpyWithStream$"), SYNC),
    (re.compile(r"^cu(?:Module|Library)Load|^hipModuleLoad|^cuda(?:Module|Library)Load"), COMPILE),
)
_RANGES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"^enumerate\((?:DataLoader|DataPipe)\)|(?:^|#)DataLoader.*__next__|^\[pl\]\[profile\].*dataloader.*next"
        ),
        DATA,
    ),
    (re.compile(r"torch/utils/data/dataloader\.py\(\d+\): (?:__next__|_next_data|_get_data|_try_get_data)"), DATA),
    (
        re.compile(
            r"dynamo_timed|_dynamo/convert_frame|compile_fx|_inductor/(?:graph|scheduler|codecache|async_compile)"
        ),
        COMPILE,
    ),
    (re.compile(r"^Torch(?:Dynamo|Inductor).*[Cc]ompil|benchmark_all_configs|triton/compiler/compiler"), COMPILE),
    (re.compile(r"<built-in function collect>|^gc\.py|Garbage [Cc]ollection"), GC),
    (re.compile(r"torch/serialization\.py\(\d+\): save|torch/distributed/checkpoint/.*: save"), STALL),
)


def is_launch(call: str) -> bool:
    """Tell whether a runtime call puts work on the device."""
    return bool(_LAUNCHES.match(call))


def runtime_class(call: str) -> str | None:
    """Class of a runtime call, or None. An asynchronous copy is classed by what it copies, not by its name."""
    return next((cause for pattern, cause in _RUNTIME if pattern.search(call)), None)


def range_class(name: str) -> str | None:
    """Class of an operator, a named range or a Python function, or None."""
    return next((cause for pattern, cause in _RANGES if pattern.search(name)), None)
