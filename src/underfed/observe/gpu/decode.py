"""What NVML's raw values mean, in words; nothing here needs a device."""

from __future__ import annotations

POWER_CAP = "power cap"

#: Bits of NVML's clock event (throttle) reasons. The words are the field's; `slows` says whether the bit costs speed.
_REASONS: tuple[tuple[int, str, bool], ...] = (
    (0x1, "idle", False),
    (0x2, "application clocks set", True),
    (0x4, POWER_CAP, True),
    (0x8, "hardware slowdown", True),
    (0x10, "sync boost", True),
    (0x20, "thermal slowdown (software)", True),
    (0x40, "thermal slowdown (hardware)", True),
    (0x80, "power brake (external)", True),
    (0x100, "display clock setting", False),
    (0x200, "board limit", True),
    (0x400, "reliability limit", True),
)
_KNOWN = sum(bit for bit, _, _ in _REASONS)


def reasons(mask: int | None) -> list[str] | None:
    """Return a throttle mask in words, [] for none; None where the mask is not known. Unknown bits are shown in hex."""
    if mask is None:
        return None
    found = [word for bit, word, _ in _REASONS if mask & bit]
    rest = mask & ~_KNOWN
    return [*found, f"unknown 0x{rest:x}"] if rest else found


def slowing(mask: int | None) -> list[str]:
    """Return only the reasons that hold the clock below what the card could do; idle and display are not among them."""
    return [word for bit, word, slows in _REASONS if slows and mask is not None and mask & bit]


def cuda_version(number: int | None) -> str | None:
    """Return NVML's CUDA version number as text: 12080 is 12.8; None for anything that is none."""
    return f"{number // 1000}.{number % 1000 // 10}" if number is not None and number >= 1000 else None
