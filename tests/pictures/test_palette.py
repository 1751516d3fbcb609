"""Colours of the classes against a model of colour blindness (Machado, Oliveira and Fernandes 2009, full severity)."""

from __future__ import annotations

from itertools import combinations

import pytest

from underfed.pictures.palette import CLASSES

EYES = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
GROUNDS = {"light": "#ffffff", "dark": "#1b1f26"}


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def seen(colour: str, eyes: str) -> list[float]:
    return [min(1.0, max(0.0, sum(m * c for m, c in zip(row, linear(colour))))) for row in EYES[eyes]]


def lab(rgb: list[float]) -> tuple[float, float, float]:
    r, g, b = rgb
    x = (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047
    y = 0.2126729 * r + 0.7151522 * g + 0.0721750 * b
    z = (0.0193339 * r + 0.1191920 * g + 0.9503041 * b) / 1.08883
    fx, fy, fz = ((t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116) for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def distance(one: str, two: str, eyes: str) -> float:
    return sum((a - b) ** 2 for a, b in zip(lab(seen(one, eyes)), lab(seen(two, eyes)))) ** 0.5


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("ground", GROUNDS)
def test_any_two_classes_are_told_apart(eyes: str, ground: str) -> None:
    colours = {name: (day if ground == "light" else night) for name, _, day, night in CLASSES}
    close = {
        (one, two): round(found, 1)
        for one, two in combinations(colours, 2)
        if (found := distance(colours[one], colours[two], eyes)) < 12
    }
    assert not close


@pytest.mark.parametrize("ground", GROUNDS)
def test_every_class_stands_out_from_the_ground(ground: str) -> None:
    for name, _, day, night in CLASSES:
        assert distance(day if ground == "light" else night, GROUNDS[ground], "usual") > 20, name
