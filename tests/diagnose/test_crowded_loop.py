"""A CPU-only run whose training thread has to wait for a CPU: what is said of it, and when nothing is."""

from __future__ import annotations

import pytest

from underfed.diagnose.assemble import assemble
from underfed.diagnosis import Diagnosis, Step, Subject, Waits
from underfed.playbook.evidence import CpuFacts, Evidence

NONE = Waits(data=0.0, transfer=0.0, sync=0.0, launch=0.0, stall=0.0, comms=0.0, other=0.0)


def told(wait: float | None, *, on_gpu: bool = False, others: float | None = None) -> Diagnosis:
    evidence = Evidence(
        kind="run",
        on_gpu=on_gpu,
        steps=200,
        step=Step(ms=10.0, device_ms=10.0, device_share=1.0, compute_ms=10.0, copy_ms=0.0, wait_ms=NONE),
        cpu_wait=wait,
        cpus=CpuFacts(visible=2, usable=2.0, quota=None, limited_by=None, throttled_share=None, others=others),
    )
    return assemble(evidence, Subject(kind="run", paths=[], steps=200))


@pytest.mark.parametrize("wait", [None, 0.0, 0.1])
def test_a_thread_that_has_its_cpu_is_well_fed(wait: float | None) -> None:
    found = told(wait)
    assert (found.verdict.bound, found.verdict.confidence) == ("compute", "high")
    assert "well fed" in found.verdict.text
    assert not found.limits


def test_a_thread_that_waits_is_not_called_well_fed() -> None:
    found = told(1.0, others=1.7)
    assert (found.verdict.bound, found.verdict.confidence) == ("compute", "medium")
    assert "had no CPU for 50 % of the time" in found.verdict.text
    assert "1.7 CPUs" in found.verdict.text
    assert "well fed" not in found.verdict.text
    assert found.verdict.settle
    assert len(found.limits) == 1


def test_what_the_run_takes_from_itself_is_not_said_of_others() -> None:
    text = told(1.0, others=0.1).verdict.text
    assert "the run's own processes and threads" in text
    assert "beside" not in text


def test_on_a_gpu_the_host_has_time_to_spare() -> None:
    assert told(1.0, on_gpu=True).verdict.confidence == "high"
