"""Fetches spend their time waiting for storage or a network, not computing.

What it looks like
    Workers are idle most of the time, the CPUs too, and the loop waits for input.

Why it costs
    Bytes arrive more slowly than training uses them: a network share, an object store, a cold or spinning disk, or
    one request at a time over a long distance.

Fix
    Copy the working set to local NVMe before training, read in larger pieces (shards instead of single files), keep
    several requests in flight, or cache what is read again each epoch. More workers help only while the store can
    serve more requests at once; the first pass over a cold cache may also speed up by itself.
    plain PyTorch: `dataset = Images("/local/train")`, copied there before the loop begins
    HF Trainer:    `load_dataset(name, cache_dir="/local")`, or a dataset over the copied folder
    Lightning:     copy in `prepare_data`, which runs once a machine, and read the copy in `setup`

How it is found
    Wall time far above CPU time inside the fetch, with the bytes read by system calls. The line is the one where the
    samples of the workers fall.

When it stays silent
    When fetches compute (T4, T8), when only some of them are slow and the mean meets the demand (T7), and when the
    loop does not wait.

Not to be confused with
    T4: without workers the waits are in the loop itself, and workers hide them. T8: the CPU is the limit. T7: a few
    slow reads, which a deeper queue bridges. A sleep or a lock inside the dataset looks the same from outside; the
    line tells.
"""

from __future__ import annotations

from underfed.diagnose.thresholds import THRESHOLDS as T
from underfed.diagnosis import Finding, Fix, Observation
from underfed.playbook.evidence import Evidence
from underfed.playbook.gains import gain_between
from underfed.playbook.loader_model import feed, hot_place
from underfed.playbook.rule import Rule

#: Bytes a batch below which no file of samples can have been read.
_NOTHING = 512.0


def check(evidence: Evidence) -> Finding | None:
    """Find fetches that wait instead of computing."""
    model = feed(evidence)
    if model is None or model.wait < T.worth * evidence.step_ms or not model.waiting or model.bursty:
        return None
    if model.loader.workers and model.supply(model.loader.workers) < 0.8 * model.rest:
        return None
    computing = model.fetches * model.fetch.cpu / max(model.loader.workers, 1)
    left = model.rest + computing if model.loader.workers == 0 else max(model.rest, computing)
    read = model.fetch.bytes_read
    waited = model.fetch.wall - model.fetch.cpu
    # Reads through sockets and mapped files are not counted, so that nothing was read does not rule storage out.
    nothing = read is not None and read < _NOTHING
    what = (
        "waiting, and next to nothing is read from files: for a network, a mapped file, a sleep or a lock."
        if nothing
        else "waiting for storage or a network; stage the data locally or read it in larger pieces."
    )
    return RULE.finding(
        summary=f"Of {model.fetch.wall:.0f} ms for a batch, {waited:.0f} ms are spent {what}",
        gain=gain_between(evidence, 0.95 * left),
        where=hot_place(evidence),
        evidence=[
            Observation(source="agent", text="wall time of one fetch", value=round(model.fetch.wall, 3), unit="ms"),
            Observation(source="agent", text="CPU time of one fetch", value=round(model.fetch.cpu, 3), unit="ms"),
            Observation(source="agent", text="read by system calls", value=read, unit="bytes/batch"),
        ],
        fix=Fix(
            text="see what the line waits for; a network wants more requests in flight, a sleep or a lock has to go"
            if nothing
            else "copy the data to local NVMe, pack it into larger files, or keep more requests in flight"
        ),
    )


RULE = Rule(
    id="U8",
    name="slow-storage-reads",
    stage="dataloader",
    bound="data",
    numerics="exact",
    doc=__doc__ or "",
    check=check,
)
