"""The part of the card that only a live look has: who runs, where the training thread is, what the machine gives."""

from __future__ import annotations

from underfed.diagnose.live_records import Live, LiveDiagnosis, Process, Rank, Workers
from underfed.report.page import WIDTH, Line, paragraph
from underfed.report.text import clean, shorten_left

_MOST_PROCESSES = 14
_MOST_PLACES = 6
_MOST_RANKS = 4
_MOST_FRAMES = 12
_SIGNIFICANT = 0.02


def middle(diagnosis: LiveDiagnosis, ascii_only: bool) -> list[Line]:
    """Return the lines between the verdict and the fixes."""
    live = diagnosis.live
    page = _cost(live, ascii_only)
    still = [rank for rank in live.ranks if rank.samples and not rank.moves]
    if live.headline is not None and live.headline.startswith(("hung", "stands")):
        for rank in still[:16]:
            page += _stack(rank, ascii_only)
    else:
        for rank in live.ranks[:_MOST_RANKS]:
            page += _places(rank, len(live.ranks) > 1, ascii_only)
    for workers in live.workers[:_MOST_RANKS]:
        page += _workers(workers, ascii_only)
    return [*page, *_processes(live, ascii_only), *_host(live, ascii_only)]


def _share(value: float | None) -> str:
    return "?" if value is None else f"{100 * value:.0f} %"


def _cost(live: Live, ascii_only: bool) -> list[Line]:
    sampled = live.sampled
    page = [] if live.note is None else paragraph(clean(live.note, ascii_only=ascii_only), "dim")
    title = f"{live.seconds:.1f} s of process {live.pid} and all below it"
    if sampled.reason is None:
        title += (
            f"; {sampled.samples} stacks, {sampled.rate} a second and thread, none of them by stopping it"
            f" ({sampled.errors} failed, {sampled.torn} torn). Looking took {100 * sampled.cpus:.1f} % of one CPU"
        )
    return [*page, *paragraph(title, "bold", rest="  ")]


def _name(rank: Rank) -> str:
    return f"rank {rank.rank} (process {rank.pid})" if rank.rank is not None else f"process {rank.pid}"


def _places(rank: Rank, named: bool, ascii_only: bool) -> list[Line]:
    if not rank.samples:
        return []
    who = f" of {_name(rank)}" if named else ""
    page: list[Line] = [[(f"  where the training thread{who} is", "bold")]]
    for place in rank.places[:_MOST_PLACES]:
        if place.share < _SIGNIFICANT:
            break
        where = shorten_left(clean(place.where, ascii_only=ascii_only), 30)
        text = clean(place.text, ascii_only=ascii_only)
        room = WIDTH - 56
        text = text if len(text) <= room else f"{text[: room - 3]}..."
        page.append(
            [(f"  {_share(place.share):>6}  ", ""), (f"{place.kind:<10}  {where:<30}  ", "cyan"), (text, "dim")]
        )
    return page


def _stack(rank: Rank, ascii_only: bool) -> list[Line]:
    kernel = f", in the kernel: {rank.kernel}" if rank.kernel else ""
    page: list[Line] = [[(clean(f"  where {_name(rank)} stands{kernel}", ascii_only=ascii_only), "bold")]]
    shown = [shorten_left(clean(frame, ascii_only=ascii_only), WIDTH - 4) for frame in rank.stack[:_MOST_FRAMES]]
    page += [[("    ", ""), (frame, "cyan")] for frame in shown]
    if len(rank.stack) > _MOST_FRAMES:
        page.append([(f"    and {len(rank.stack) - _MOST_FRAMES} more frames in the JSON", "dim")])
    return page


def _workers(workers: Workers, ascii_only: bool) -> list[Line]:
    parts = [f"{workers.count} loader workers of {workers.pid}: fetching {_share(workers.fetch)} of the time"]
    parts.append(f"idle {_share(workers.idle)}")
    parts.append(f"{100 * workers.cpus:.0f} % of a CPU each")
    if workers.compute_share is not None:
        parts.append(f"{_share(workers.compute_share)} of a fetch computes")
    if workers.asked_mb_s is not None and workers.read_mb_s is not None:
        parts.append(f"read {workers.asked_mb_s:.1f} MB/s, {workers.read_mb_s:.1f} of it from storage")
    if workers.storage is not None:
        parts.append(f"files on {workers.storage}")
    return paragraph(clean(", ".join(parts), ascii_only=ascii_only), first="  ", rest="    ")


def _processes(live: Live, ascii_only: bool) -> list[Line]:
    page: list[Line] = [[(f"  {'role':<9}{'pid':>8}  {'CPU':>6} {'waits':>6} {'threads':>7}  name", "bold")]]
    order = {"launcher": 0, "rank": 1, "worker": 2, "child": 3, "helper": 4, "other": 5}
    ranked = sorted(live.processes, key=lambda each: (order.get(each.role, 9), each.rank or 0, each.pid))
    page += [_process(each, ascii_only) for each in ranked[:_MOST_PROCESSES]]
    if len(ranked) > _MOST_PROCESSES:
        page.append([(f"  and {len(ranked) - _MOST_PROCESSES} more in the JSON", "dim")])
    return page


def _process(each: Process, ascii_only: bool) -> Line:
    role = f"{each.role} {each.rank}" if each.role == "rank" and each.rank is not None else each.role
    queued = "?" if each.queued is None else f"{100 * each.queued:.0f} %"
    name = clean(each.name, ascii_only=ascii_only)[:24]
    extra = {"T": "  stopped", "Z": "  zombie", "gone": "  has ended"}.get(each.state, "")
    extra += f"  {each.major_faults} major faults" if each.major_faults > 100 else ""
    figures = f"{100 * each.cpus:>4.0f} % {queued:>6} {each.threads:>7}"
    return [(f"  {role:<9}{each.pid:>8}  {figures}  ", ""), (f"{name}{extra}"[: WIDTH - 44], "dim")]


def _host(live: Live, ascii_only: bool) -> list[Line]:
    host = live.host
    usable = "?" if host.usable_cpus is None else f"{host.usable_cpus:g}"
    text = f"CPUs: {host.run_cpus:.1f} used of {usable} usable ({host.limited_by or 'not known'})"
    if host.machine_cpus is not None:
        text += f", {host.machine_cpus:.1f} by the whole machine"
    text += f"; throttled {_share(host.throttled)}" if host.quota is not None else "; no quota seen"
    waits = [f"{name} {_share(share)}" for name, share in host.pressure.items()]
    text += f"; pressure: {', '.join(waits)}" if waits else "; the kernel keeps no pressure"
    page = paragraph(text, "dim", first="  ", rest="    ")
    if host.memory_limit and host.memory_used is not None:
        held = (host.memory_used - (host.memory_cache or 0)) / host.memory_limit
        text = f"memory: {_share(held)} of the limit of {host.memory_limit / 1e9:.1f} GB, cache left out"
        page += paragraph(text, "dim", first="  ", rest="    ")
    if host.shm_total and host.shm_free is not None:
        text = f"/dev/shm: {host.shm_free / 1e9:.2f} of {host.shm_total / 1e9:.2f} GB free"  # noqa: S108  # a label
        page += paragraph(text, "dim", first="  ", rest="    ")
    for device in live.gpu:
        figures = (
            ("utilization", device.utilization, "%"),
            ("SM active", device.sm, "%"),
            ("tensor", device.tensor, "%"),
            ("DRAM", device.dram, "%"),
            ("power", device.power, "W"),
            ("SM clock", device.clock, "MHz"),
        )
        parts = [f"{word} {value:.0f} {unit}" for word, value, unit in figures if value is not None]
        parts += [f"held down by {word}" for word in device.throttled]
        text = f"GPU {device.id} {device.name or ''}: {', '.join(parts) or 'no reading'}"
        page += paragraph(clean(text, ascii_only=ascii_only), "dim", first="  ", rest="    ")
    if not live.gpu and live.gpu_reason:
        page += paragraph(clean(f"GPU: {live.gpu_reason}", ascii_only=ascii_only), "dim", first="  ", rest="    ")
    return page
