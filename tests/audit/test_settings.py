"""YAML settings: what a program reads is what Hydra itself composes from the same files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from underfed.audit.settings import read_settings

pytest.importorskip("yaml")

TREES: dict[str, dict[str, str]] = {
    "a group's choice, the file itself wins": {
        "config": "defaults:\n  - data: imagenet\ndata:\n  batch: 7\nseed: 1\n",
        "data/imagenet": "workers: 4\nbatch: 32\n",
        "data/cifar": "workers: 0\nbatch: 8\n",
    },
    "self first, so groups win": {
        "config": "defaults:\n  - _self_\n  - data: imagenet\ndata:\n  batch: 7\n",
        "data/imagenet": "workers: 4\nbatch: 32\n",
    },
    "packages": {
        "config": "defaults:\n  - exp: fast\n  - loader@train.loader: big\n  - loader@val.loader: small\n  - _self_\n",
        "exp/fast": "# @package _global_\nepochs: 3\n",
        "loader/big": "workers: 8\npin: true\n",
        "loader/small": "workers: 0\npin: false\n",
    },
    "a nested list, an override and a base beside the file": {
        "config": "defaults:\n  - base\n  - model: net\n  - exp: a\n  - _self_\nname: ${title}\n",
        "base": "title: t\nworkers: 2\n",
        "model/net": "defaults:\n  - opt: sgd\n  - _self_\nwidth: 3\n",
        "model/opt/sgd": "lr: 0.1\n",
        "model/opt/adam": "lr: 0.2\nfused: false\n",
        "exp/a": "# @package _global_\ndefaults:\n  - override /model/opt: adam\nworkers: 5\n",
    },
    "lists of files, null, optional, interpolation of a value": {
        "config": (
            "defaults:\n  - cb: [one, two]\n  - x: null\n  - optional y: gone\n  - _self_\n"
            'n: 4\nloaders:\n  - {workers: "${n}"}\n  - {workers: 2}\n'
        ),
        "cb/one": "one:\n  every: 1\n",
        "cb/two": "two:\n  every: 2\n",
    },
}


def flat(value: Any, key: str = "") -> dict[str, object]:
    if isinstance(value, dict):
        return {
            k: v for name, part in value.items() for k, v in flat(part, f"{key}.{name}" if key else str(name)).items()
        }
    if isinstance(value, list):
        return {k: v for at, part in enumerate(value) for k, v in flat(part, f"{key}.{at}").items()}
    return {key: value}


@pytest.mark.filterwarnings("ignore:In 'config'")  # of a list without _self_: what is tested
@pytest.mark.parametrize("name", TREES)
def test_a_composition_is_that_of_hydra(name: str, tmp_path: Path) -> None:
    hydra = pytest.importorskip("hydra")
    omegaconf = pytest.importorskip("omegaconf")
    conf = tmp_path / "conf"
    for file, text in TREES[name].items():
        path = conf / f"{file}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with hydra.initialize_config_dir(str(conf), version_base=None):
        wanted = omegaconf.OmegaConf.to_container(hydra.compose("config"), resolve=True)
    ours = read_settings([tmp_path], frozenset({"config"}))
    for key, value in flat(wanted).items():
        found = ours.find(key.split("."))
        assert found is not None, key
        assert found[1] == value, key


def test_what_hydra_would_ask_for_or_compute_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("a: ???\nb: ${oc.env:HOME}\nc: 1\n")
    ours = read_settings([tmp_path])
    assert [ours.find([key]) is None for key in "abcd"] == [True, True, False, True]


def test_files_that_disagree_are_not_known_and_one_that_is_asked_for_is(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    for name, workers in (("small", 0), ("large", 8)):
        (tmp_path / "conf" / f"{name}.yaml").write_text(f"defaults:\n  - _self_\ndata:\n  workers: {workers}\n")
    assert read_settings([tmp_path]).find(["data", "workers"]) is None
    found = read_settings([tmp_path], frozenset({"large"})).find(["data", "workers"])
    assert found is not None and found[1] == 8


@pytest.mark.parametrize(
    "text",
    [
        "a: &x [*x]\n",
        "a: !!python/object/apply:os.system ['true']\n",
        "- 1\n",
        "\t: {",
        "a: " + "[" * 3000,
        "defaults: 3\n",
        "defaults:\n  - {a: {b: c}}\n  - [x]\n  - 7\n",
        "defaults:\n  - config\n",
        "? [1, 2]\n: 3\n",
        "a: !!bool maybe\n",
        'a: !!int ""\n',
        "a: !!timestamp soon\n",
    ],
)
def test_hostile_files_say_nothing_and_do_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(text)
    assert read_settings([tmp_path]).find(["b"]) is None


def test_a_small_file_of_aliases_that_unfolds_to_millions_is_cut_short(tmp_path: Path) -> None:
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (tmp_path / "config.yaml").write_text("\n".join(lines) + "\n")
    assert read_settings([tmp_path]).find(["nothing"]) is None


def test_an_alias_to_the_whole_file_takes_no_memory_to_speak_of(tmp_path: Path) -> None:
    """Each round makes the key longer: 20,000 rounds of a long name would be gigabytes."""
    (tmp_path / "config.yaml").write_text(f"&a\ny: *a\n{'k' * 900}: *a\n")
    code = (
        "import resource, sys; from pathlib import Path; from underfed.audit.settings import read_settings\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "sys.exit(read_settings([Path(sys.argv[1])]).find(['nothing']) is not None)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
