"""An export of Nsight Systems by the schema that NVIDIA documents (export schema 3.16), from plain rows.

Only the tables and columns that an export always declares are made; a real one has more.
"""

from __future__ import annotations

import sqlite3

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER,
  totalMemory INTEGER, smCount INTEGER, uuid TEXT, chipName TEXT, cuDevice INTEGER, computeMajor INTEGER,
  computeMinor INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT, smCount INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  launchType INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
  gridZ INTEGER NOT NULL,
  blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, gridId INTEGER NOT NULL,
  graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER,
  bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER,
  srcDeviceId INTEGER, dstDeviceId INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER,
  value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
  callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE ENUM_NSYS_EVENT_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', 'Host-to-Device'),
  (2, 'CUDA_MEMCPY_KIND_DTOH', 'Device-to-Host'), (8, 'CUDA_MEMCPY_KIND_DTOD', 'Device-to-Device');
INSERT INTO ENUM_CUDA_MEM_KIND VALUES (0, 'CUDA_MEMOPR_MEMORY_KIND_PAGEABLE', 'Pageable'),
  (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device');
INSERT INTO ENUM_NSYS_EVENT_TYPE VALUES (34, 'NvtxMark', 'NvtxMark'), (59, 'NvtxPushPopRange', 'NvtxPushPopRange'),
  (60, 'NvtxStartEndRange', 'NvtxStartEndRange');
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.16.1');
"""


class Export:
    """Writes rows; `pid` is the process that owns them."""

    def __init__(self, path, base=1_700_000_000_000_000_000):
        self.path = path
        self.database = sqlite3.connect(path)
        self.database.executescript(SCHEMA)
        self.database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (base,))
        self.texts = {}

    def text(self, value):
        if value not in self.texts:
            self.texts[value] = len(self.texts) + 1
            self.database.execute("INSERT INTO StringIds VALUES (?, ?)", (self.texts[value], value))
        return self.texts[value]

    @staticmethod
    def process(pid):
        return (1 << 56) | (pid << 24)

    def add(self, table, **columns):
        names = ", ".join(f'"{name}"' for name in columns)
        marks = ", ".join("?" * len(columns))
        self.database.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))

    def card(self, number, name, pid, device):
        self.add("TARGET_INFO_GPU", id=number, name=name, computeMajor=9, computeMinor=0)
        self.add("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=device, pid=pid)

    def _device(self, pid, start, end, device, stream, correlation):
        return {
            "start": start, "end": end, "deviceId": device, "contextId": 1, "streamId": stream,
            "correlationId": correlation, "globalPid": self.process(pid),
        }  # fmt: skip

    def kernel(self, pid, start, end, name, device=0, stream=7, correlation=0):
        sizes = dict.fromkeys(
            ("registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "gridId"), 1
        )
        rows = self._device(pid, start, end, device, stream, correlation)
        short = self.text(name.split("<")[0].split("(")[0])
        self.add("CUPTI_ACTIVITY_KIND_KERNEL", **rows, demangledName=self.text(name), shortName=short, **sizes)

    def copy(self, pid, start, end, kind, source, target, size, device=0, stream=7, correlation=0):
        rows = self._device(pid, start, end, device, stream, correlation)
        self.add("CUPTI_ACTIVITY_KIND_MEMCPY", **rows, bytes=size, copyKind=kind, srcKind=source, dstKind=target)

    def memset(self, pid, start, end, size, device=0, stream=7, correlation=0):
        rows = self._device(pid, start, end, device, stream, correlation)
        self.add("CUPTI_ACTIVITY_KIND_MEMSET", **rows, value=0, bytes=size)

    def call(self, pid, tid, start, end, name, correlation):
        thread = self.process(pid) | tid
        self.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, eventClass=0, globalTid=thread,
                 correlationId=correlation, nameId=self.text(name), returnValue=0)  # fmt: skip

    def range(self, pid, tid, start, end, name, registered=False):
        thread = self.process(pid) | tid
        named = {"textId": self.text(name)} if registered else {"text": name}
        self.add("NVTX_EVENTS", start=start, end=end, eventType=59, globalTid=thread, **named)

    def done(self):
        self.database.commit()
        self.database.close()
        return self.path
