"""Each sample is a small file or a small read, so the store's answer time counts and not its speed.

What it looks like
    Workers wait, the disk or the network moves only a few MB a second, and copying one large file is fast.

Why it costs
    Opening and reading a small file costs several round trips to a network store, and a seek on a disk. Thousands of
    them a batch add up, however wide the line.

Fix
    Pack samples into shards of 100 MB and more (WebDataset tar files, Parquet, LMDB, memory-mapped arrays) and read
    them in order; or copy the set to local NVMe once. Check that the order of samples stays random enough.
    plain PyTorch: `webdataset.WebDataset("train-{000000..000099}.tar")` in place of the dataset of files
    HF Trainer:    `load_dataset("webdataset", data_files="train-*.tar", streaming=True)` as train_dataset
    Lightning:     the same dataset in the loader that train_dataloader() returns

How it is found
    Bytes read by system calls for each sample, and bytes a second of one worker while it waits.

When it stays silent
    Where a fetch computes, where samples are large, and where next to nothing is read: bytes that come through sockets
    are not counted, and a sleep or a lock reads nothing.

Not to be confused with
    U8: the line itself is slow. The cure here is fewer and larger reads; there it is another place.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.loader_model import feed, hot_place
from underfed.playbook.rule import Rule

_SMALL = 256e3
#: Less than this a sample is no reading of samples: what waits is a socket, a sleep or a lock.
_LEAST = 64.0
_SLOW = 30e6


def check(evidence: Evidence) -> Finding | None:
    """Find fetches that wait for many small reads."""
    model = feed(evidence)
    if model is None or not model.waiting or model.bursty or model.wait < T.worth * evidence.step_ms:
        return None
    fetch, count = model.fetch, model.loader.workers
    read = fetch.bytes_read or 0.0
    each, waited = read / max(fetch.samples, 1.0), max(fetch.wall - fetch.cpu, 1e-6)
    rate = read / (waited * 1e-3)
    if fetch.samples < 4 or not _LEAST <= each < _SMALL or rate > _SLOW:
        return None
    if count and model.supply(count) < 0.8 * model.rest:
        return None
    left = max(model.rest, model.fetches * fetch.cpu / max(count, 1))
    return RULE.finding(
        summary=(
            f"A batch is {fetch.samples:.0f} reads of about {each / 1e3:.0f} kB at {rate / 1e6:.2g} MB/s: the store's "
            "answer time counts, not its speed; pack samples into large shards."
        ),
        gain=gain_between(evidence, 0.95 * left),
        where=hot_place(evidence),
        evidence=[
            Observation(source="agent", text="read by system calls", value=float(round(read)), unit="bytes/batch"),
            Observation(source="agent", text="waiting in one fetch", value=round(waited, 3), unit="ms"),
        ],
        fix=Fix(text="pack samples into shards of 100 MB and more, or copy the set to local NVMe"),
    )


RULE = Rule(
    id="U25",
    name="many-small-reads",
    stage="dataloader",
    bound="data",
    numerics="semantic",
    doc=__doc__ or "",
    check=check,
)
