"""How to come by the flash-attn package on this machine: which wheel fits, and how many compilers its memory bears."""

from __future__ import annotations

import re

from underfed.diagnosis import Observation
from underfed.playbook.evidence import Evidence

#: One compiler job of flash-attn takes up to so much memory; its own build allows half of the cores.
_JOB_BYTES = 9 * 2**30
_NUMBER = re.compile(r"(\d+)\.(\d+)")


def observations(evidence: Evidence) -> list[Observation]:
    """Return what to install where code asks for flash-attn and it is missing; nothing where that is not known."""
    build = evidence.torch.get("build") or {}
    if build.get("flash_attn") is not False:
        return []
    jobs, fits = max_jobs(evidence), wheel(evidence)
    found = []
    if fits:
        found.append(
            Observation(source="agent", text=f"flash-attn is not installed; where code asks for it, a wheel {fits}")
        )
    if jobs:
        ninja = "" if build.get("ninja") else "pip install ninja; "
        text = f"without a wheel: {ninja}MAX_JOBS={jobs} pip install flash-attn --no-build-isolation"
        found.append(Observation(source="host", text=text, value=float(jobs), unit="jobs"))
    return found


def wheel(evidence: Evidence) -> str | None:
    """Return the part of a wheel's name that has to match: CUDA, torch, C++ ABI, Python and platform."""
    versions, build = evidence.torch.get("versions") or {}, evidence.torch.get("build") or {}
    cuda, torch, python = (_NUMBER.match(str(versions.get(name, ""))) for name in ("cuda", "torch", "python"))
    if not (cuda and torch and python) or "cxx11" not in build or "machine" not in build:
        return None
    tag = f"cp{python[1]}{python[2]}"
    abi = "TRUE" if build["cxx11"] else "FALSE"
    return f"+cu{cuda[1]}torch{torch[1]}.{torch[2]}cxx11abi{abi}-{tag}-{tag}-linux_{build['machine']}"


def max_jobs(evidence: Evidence) -> int | None:
    """Return how many compilers may run at once, by the CPUs and the free memory that the run may use."""
    cpus, memory = evidence.cpus, evidence.memory
    if cpus is None or not cpus.usable or memory is None:
        return None
    return max(1, min(int(cpus.usable / 2), int((memory.limit - memory.used) / _JOB_BYTES)))
