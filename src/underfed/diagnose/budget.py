"""The budget of a step: every millisecond of the wall clock is the device's, a wait with a name, or `other`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from underfed.diagnosis import Step, Waits

#: Classes of stack samples outside the timed regions, by what they count as. Forward and optimizer code is the device's
#: own time on a CPU-only run, and launching on a GPU.
WORK = frozenset({"forward", "optimizer"})
STALLS = frozenset({"stall", "eval", "checkpoint", "logging", "progress", "plotting", "compile"})


@dataclass(frozen=True)
class HostTime:
    """Where the training thread's time goes, in ms a step; the parts add up to `step`."""

    step: float
    data: float
    transfer: float
    sync: float
    stall: float
    comms: float
    work: float
    other: float


def host_time(regions: Mapping[str, float], sections: Mapping[str, Mapping[str, float]]) -> HostTime:
    """Sort the training thread's time.

    `regions` are exact times in ms a step, the three sections of the loop included; `sections[section][class]` are
    the shares (adding up to 1) that stack samples give the classes in each section. A section that no sample fell
    into was too short to matter: before the optimizer step it counts as work, behind it as other.
    """
    get = regions.get
    data = get("data", 0.0) + get("start", 0.0)
    stall = get("eval", 0.0) + get("gc", 0.0) + get("cache", 0.0)
    work = get("backward", 0.0) + get("optimizer", 0.0)
    other = 0.0
    for section in ("pre", "mid", "post"):
        time = get(section, 0.0)
        parts = sections.get(section)
        if not parts:
            if section == "post":
                other += time
            else:
                work += time
            continue
        for kind, share in parts.items():
            if kind == "data":
                data += share * time
            elif kind in STALLS:
                stall += share * time
            elif kind in WORK:
                work += share * time
            else:
                other += share * time
    return HostTime(
        step=sum(regions.values()),
        data=data,
        transfer=get("h2d", 0.0),
        sync=get("sync", 0.0) + get("d2h", 0.0),
        stall=stall,
        comms=get("comms", 0.0),
        work=work,
        other=other,
    )


def cpu_budget(host: HostTime, exposed: float | None = None, exchange: float | None = None) -> Step:
    """Budget of a run without a GPU: the device is the CPU inside forward, backward and optimizer.

    `exposed` is the part of the backward pass that only waits for the gradient exchange, of `exchange` in all, in ms.
    """
    if exposed is not None:
        inside = min(exposed, host.work)
        host = replace(host, work=host.work - inside, comms=host.comms + inside)
    return Step(
        ms=host.step,
        device_ms=host.work,
        device_share=host.work / host.step if host.step else None,
        compute_ms=host.work,
        copy_ms=0.0,
        comms_ms=exchange,
        exposed_comms_ms=host.comms if exchange is not None else None,
        wait_ms=Waits(
            data=host.data,
            transfer=host.transfer,
            sync=host.sync,
            launch=0.0,
            stall=host.stall,
            comms=host.comms,
            other=host.other,
        ),
    )


@dataclass(frozen=True)
class DeviceTime:
    """Device time of one step from a traced window, in ms; `idle` are shares of the idle time by cause, if known."""

    busy: float
    compute: float
    copy: float
    comms: float
    exposed_comms: float
    sync_share: float = 0.0


def gpu_budget(host: HostTime, device: DeviceTime | None) -> Step:
    """Budget of a run on a GPU.

    The device's idle time is given first to what the host was doing instead of launching (input, stalls, transfers,
    collectives), in proportion where the device's queue hid a part of it, then to launching and to the tail of syncs.
    Without device time the waits are the host's own, and nothing says how much of them the device's queue hid.
    """
    if device is None:
        return Step(
            ms=host.step,
            wait_ms=Waits(data=host.data, transfer=host.transfer, stall=host.stall, comms=host.comms or None),
        )
    busy = min(device.busy, host.step)
    idle = host.step - busy
    named = {"data": host.data, "transfer": host.transfer, "stall": host.stall, "comms": host.comms}
    total = sum(named.values())
    scale = min(1.0, idle / total) if total > 0 else 0.0
    waits = {name: value * scale for name, value in named.items()}
    left = max(0.0, idle - sum(waits.values()))  # rounding may take it just below zero
    sync = min(left * device.sync_share, host.sync)
    launch = min(left - sync, host.work + host.sync)
    return Step(
        ms=host.step,
        device_ms=device.busy,
        device_share=device.busy / host.step if host.step else None,
        compute_ms=device.compute,
        copy_ms=device.copy,
        comms_ms=device.comms,
        exposed_comms_ms=device.exposed_comms,
        wait_ms=Waits(**waits, sync=sync, launch=launch, other=max(0.0, left - sync - launch)),
    )
