"""Which format a file is, where it is not one that can be read; each is refused in one line that names it."""

from __future__ import annotations

import re

from underfed.errors import UsageError

_ADVICE = "export a trace with torch.profiler (prof.export_chrome_trace) or `nsys export --type sqlite`"
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive: unpack it and read the trace inside"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it (zstd -d) and read the trace inside"),
    (b"BZh", "a bzip2 archive: unpack it (bunzip2) and read the trace inside"),
    (b"\xfd7zXZ\x00", "an xz archive: unpack it (unxz) and read the trace inside"),
    (b"SQLite format 3\x00", "an SQLite file that is compressed or far away: unpack or copy it, and read that"),
    (b"NSYS", "an Nsight Systems report: run `nsys export --type sqlite` on it and read the .sqlite file"),
    (b"PAR1", f"a parquet file: {_ADVICE}"),
    (b"\x80\x02", f"a pickle, which is never loaded: {_ADVICE}"),
    (b"\x80\x04", f"a pickle, which is never loaded: {_ADVICE}"),
    (b"\x89PNG", f"an image: {_ADVICE}"),
    (b"%PDF", f"a PDF: {_ADVICE}"),
)
_HTML = re.compile(rb"\s*<(?:!DOCTYPE|html|\?xml)", re.IGNORECASE)


def refuse_by_magic(data: bytes, path: str) -> None:
    """Raise UsageError where the first bytes are those of another format, or of no text at all."""
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise UsageError(f"{path} is {what}")
    if _HTML.match(data):
        raise UsageError(f"{path} is a web page, not a trace: {_ADVICE}")
    if data[:3] == b"\xef\xbb\xbf":
        data = data[3:]
    lead = data.lstrip()[:1]
    if lead in (b"{", b"["):
        return
    sample = data[:4096]
    if b"/host:CPU" in sample or b"/device:" in sample or path.endswith((".xplane.pb", ".pb")):
        raise UsageError(f"{path} is an XPlane protobuf (JAX or TensorFlow): {_ADVICE}")
    if b"perfetto" in sample.lower() or path.endswith((".pftrace", ".perfetto-trace")):
        raise UsageError(f"{path} is a Perfetto protobuf trace: {_ADVICE}")
    if not sample.strip():
        return
    what = "text, but not JSON" if _is_text(sample) else "a binary file of no format known here"
    raise UsageError(f"{path} is {what}: {_ADVICE}")


def _is_text(sample: bytes) -> bool:
    return sum(byte < 9 for byte in sample) == 0


def refuse_json(head: bytes, path: str) -> UsageError:
    """Return the error for a JSON document that holds no trace events, naming it by its keys."""
    sample = head[:65536]
    if b'"rocprofiler-sdk-tool"' in sample or b'"rocprofiler' in sample:
        return UsageError(f"{path} is rocprofv3 JSON: {_ADVICE}")
    if re.search(rb'"schema"\s*:\s*"[^"]*chakra|"nodes"\s*:', sample):
        return UsageError(f"{path} is a PyTorch execution trace, which holds operators but no device times: {_ADVICE}")
    if b'"resourceSpans"' in sample:
        return UsageError(f"{path} is an OpenTelemetry export: {_ADVICE}")
    if b'"cells"' in sample and b'"nbformat"' in head:
        return UsageError(f"{path} is a notebook: {_ADVICE}")
    return UsageError(f"{path} is JSON, but not a trace (no traceEvents): {_ADVICE}")
