"""Values: literals and defaults are followed to their only source, and what is not known is not judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from underfed.audit.engine import audit
from underfed.audit.registry import find

HEAD = """\
from torch.utils.data import DataLoader, Dataset


class Work(Dataset):
    def __getitem__(self, i):
        return load(i)


"""


def judged(tmp_path: Path, text: str, more: dict[str, str] | None = None, rule: str = "T4") -> list[str]:
    """Return the levels of a rule's findings, and `?` for each setting that was not judged."""
    for name, body in (more or {}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body)
    (tmp_path / "train.py").write_text(HEAD + text)
    wanted = find(rule)
    assert wanted is not None
    result = audit([tmp_path], rules=[wanted])
    assert not result.unread
    return [one.sure for one in result.findings] + ["?"] * len(result.unknown)


CONFIG = "from dataclasses import dataclass, field\n@dataclass\nclass Base:\n    workers: int = {base}\n"
CHAIN = CONFIG + "@dataclass\nclass Config(Base):\n    workers: int = {own}\n"


@pytest.mark.parametrize(("base", "own", "wanted"), [(0, 4, []), (4, 0, ["likely"])])
def test_of_a_chain_of_data_classes_the_nearest_default_counts(
    base: int, own: int, wanted: list[str], tmp_path: Path
) -> None:
    code = (
        CHAIN.format(base=base, own=own) + "def main(cfg: Config):\n    DataLoader(Work(), num_workers=cfg.workers)\n"
    )
    assert judged(tmp_path, code) == wanted


@pytest.mark.parametrize(
    "use",
    [
        "cfg = Config()\nDataLoader(Work(), num_workers=cfg.workers)\n",
        "import tyro\ncfg = tyro.cli(Config)\nDataLoader(Work(), num_workers=cfg.workers)\n",
        "from transformers import HfArgumentParser\nparser = HfArgumentParser((Other, Config))\n"
        "other, cfg = parser.parse_args_into_dataclasses()\nDataLoader(Work(), num_workers=cfg.workers)\n",
        "class T:\n    def __init__(self, cfg: Config):\n        self.cfg = cfg\n"
        "    def f(self):\n        DataLoader(Work(), num_workers=self.cfg.workers)\n",
        "@dataclass\nclass All:\n    data: Config\n\ndef f(a: 'All | None'):\n"
        "    DataLoader(Work(), num_workers=a.data.workers)\n",
        "from typing import Optional\ndef f(a: Optional[Config]):\n    DataLoader(Work(), num_workers=a.workers)\n",
    ],
)
def test_the_class_of_a_configuration_is_found(use: str, tmp_path: Path) -> None:
    other = "@dataclass\nclass Other:\n    workers: int = 9\n"
    assert judged(tmp_path, CHAIN.format(base=8, own=0) + other + use) == ["likely"]


@pytest.mark.parametrize("given", ["workers=8", "8", "**more"])
def test_a_configuration_that_is_made_with_values_has_no_defaults_to_speak_of(given: str, tmp_path: Path) -> None:
    use = f"made = Config({given})\nDataLoader(Work(), num_workers=made.workers)\n"
    assert judged(tmp_path, CHAIN.format(base=8, own=0) + use) == ["?"]


@pytest.mark.parametrize(
    ("default", "wanted"),
    [("field(default=0)", ["likely"]), ("field(default_factory=lambda: 0)", ["likely"]), ("field()", ["?"])],
)
def test_fields_that_are_written_out(default: str, wanted: list[str], tmp_path: Path) -> None:
    code = CONFIG.format(base=default) + "def main(cfg: Base):\n    DataLoader(Work(), num_workers=cfg.workers)\n"
    assert judged(tmp_path, code) == wanted


HF = "from transformers import TrainingArguments, HfArgumentParser\n"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("def f(a: TrainingArguments):\n    DataLoader(Work(), num_workers=a.dataloader_num_workers)\n", ["likely"]),
        (
            "class A(TrainingArguments):\n    dataloader_num_workers: int = 4\nclass B(A):\n    pass\n"
            "def f(a: B):\n    DataLoader(Work(), num_workers=a.dataloader_num_workers)\n",
            [],
        ),
        ("class A(TrainingArguments):\n    dataloader_num_workers: int = 4\nargs = A('out')\n", []),
        ("class A(TrainingArguments):\n    more: int = 4\nargs = A('out')\n", ["possible"]),
        ("class A(TrainingArguments):\n    more: int = 4\nargs = A('out', dataloader_num_workers=2)\n", []),
        ("args = TrainingArguments('out', **settings)\n", []),
    ],
)
def test_training_arguments_are_followed_through_subclasses(text: str, wanted: list[str], tmp_path: Path) -> None:
    assert judged(tmp_path, HF + text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("def make(data, **kw):\n    return DataLoader(data, **kw)\nmake(Work(), num_workers=0)\n", ["likely"]),
        (
            "def f(data, **kw):\n    return DataLoader(data, **kw)\nf(a, num_workers=0)\nf(b, num_workers=2)\n",
            ["?"],
        ),
        ("def make(data, **kw):\n    return DataLoader(data, **kw)\nmake(a, **unknown)\n", ["?"]),
        ("kw = {}\nkw['num_workers'] = 0\nDataLoader(Work(), **kw)\n", ["certain"]),
        ("kw = {'num_workers': 2}\nif cuda:\n    kw['num_workers'] = 0\nDataLoader(Work(), **kw)\n", ["?"]),
        ("kw = {'num_workers': 2}\nkw.update({'num_workers': 0})\nDataLoader(Work(), **kw)\n", ["certain"]),
        ("kw = {'num_workers': 2} | {'pin_memory': True}\nDataLoader(Work(), **kw)\n", []),
        ("kw = {'num_workers': 4} if cuda else {}\nDataLoader(Work(), **kw)\n", ["?"]),
        ("kw = dict(num_workers=2)\nkw.pop('num_workers')\nDataLoader(Work(), **kw)\n", ["?"]),
        ("import more\nDataLoader(Work(), **more.LOADER)\n", ["certain"]),
        ("from more import LOADER\nDataLoader(Work(), **LOADER)\n", ["certain"]),
        ("from more import LOADER\nDataLoader(Work(), **{**LOADER, 'num_workers': 3})\n", []),
        (
            "class T:\n    def __init__(self):\n        self.kw = dict(num_workers=0)\n"
            "    def f(self):\n        DataLoader(Work(), **self.kw)\n",
            ["certain"],
        ),
        ("DataLoader(Work(), **(kw := kw))\n", ["?"]),
        ("kw = {**kw}\nDataLoader(Work(), **kw)\n", ["?"]),
        ("kw = {'a': 1}\nif kw['a']:\n    kw.update(num_workers=0)\nDataLoader(Work(), **kw)\n", ["certain"]),
        ("kw = {'num_workers': 0}\ndef f(n):\n    kw['num_workers'] = n\nf(8)\nDataLoader(Work(), **kw)\n", ["?"]),
        ("kw = {'num_workers': 0}\ndef f(kw):\n    kw['num_workers'] = 8\nDataLoader(Work(), **kw)\n", ["certain"]),
        ("def f(d):\n    d['num_workers'] = 8\nkw = {'num_workers': 0}\nf(kw)\nDataLoader(Work(), **kw)\n", ["?"]),
        ("kw = {'num_workers': 0}\nprint(kw)\nDataLoader(Work(), **kw)\n", ["certain"]),
        (
            "def f():\n    kw = {'num_workers': 0}\n    def g():\n        kw['num_workers'] = 8\n    g()\n"
            "    return DataLoader(Work(), **kw)\n",
            ["?"],
        ),
        ("kw = {'num_workers': 0}\nkw['num_workers'] += 4\nDataLoader(Work(), **kw)\n", ["?"]),
        ("kw = {'num_workers': 0}\nkw |= {'num_workers': 4}\nDataLoader(Work(), **kw)\n", ["?"]),
        ("kw = {'num_workers': 0}\na = kw['num_workers'] = 4\nDataLoader(Work(), **kw)\n", []),
        ("kw = {'num_workers': 0}\nkw['num_workers'], b = 4, 5\nDataLoader(Work(), **kw)\n", ["?"]),
        ("kw = {'num_workers': 0}\ndel kw['num_workers']\nDataLoader(Work(), **kw)\n", ["?"]),
        ("kw = {'num_workers': 4}\nDataLoader(Work(), **kw)\nkw['num_workers'] = 0\n", []),
        (
            "kw = {'num_workers': 4}\ntry:\n    import fast\nexcept ImportError:\n    kw['num_workers'] = 0\n"
            "DataLoader(Work(), **kw)\n",
            ["?"],
        ),
        (
            "class T:\n    def __init__(self):\n        self.kw = dict(num_workers=0)\n    def f(self):\n"
            "        self.kw['num_workers'] = 8\n    def g(self):\n        DataLoader(Work(), **self.kw)\n",
            ["?"],
        ),
    ],
)
def test_dictionaries_of_arguments_are_followed_as_far_as_they_are_known(
    text: str, wanted: list[str], tmp_path: Path
) -> None:
    assert judged(tmp_path, text, {"more.py": "LOADER = {'num_workers': 0}\n"}) == wanted


@pytest.mark.parametrize(("chosen", "wanted"), [("slow", ["likely"]), ("fast", [])])
def test_a_hydra_program_is_judged_by_the_group_that_its_list_chooses(
    chosen: str, wanted: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("yaml")
    more = {
        "conf/config.yaml": f"defaults:\n  - data: {chosen}\n",
        "conf/data/slow.yaml": "loader:\n  workers: 0\n",
        "conf/data/fast.yaml": "loader:\n  workers: 8\n",
    }
    code = (
        "import hydra\n@hydra.main(config_path='conf', config_name='config', version_base=None)\n"
        "def main(cfg):\n    DataLoader(Work(), num_workers=cfg.data.loader.workers)\n"
    )
    assert judged(tmp_path, code, more) == wanted


def test_lists_in_settings_are_followed_by_their_place(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    more = {"conf/config.yaml": "loaders:\n  - workers: 0\n  - workers: 4\n"}
    code = (
        "from omegaconf import OmegaConf\ncfg = OmegaConf.load('conf/config.yaml')\n"
        "DataLoader(Work(), num_workers=cfg.loaders[0].workers)\n"
        "DataLoader(Work(), num_workers=cfg.loaders[1].workers)\n"
        "DataLoader(Work(), num_workers=cfg['loaders'][0]['workers'])\n"
    )
    assert judged(tmp_path, code, more) == ["likely", "likely"]


@pytest.mark.parametrize(
    "text",
    [
        "import click\n@click.command()\n@click.option('-w', '--workers', default=0, type=int)\n"
        "def main(workers):\n    DataLoader(Work(), num_workers=workers)\n",
        "import click\n@click.command()\n@click.option('--num-workers', 'workers', default=0)\n"
        "def main(workers):\n    DataLoader(Work(), num_workers=workers)\n",
        "import typer\nfrom typing import Annotated\napp = typer.Typer()\n@app.command()\n"
        "def main(workers: Annotated[int, typer.Option()] = 0):\n    DataLoader(Work(), num_workers=workers)\n",
        "import typer\n@typer.Typer().command()\ndef main(workers: int = typer.Option(0, '--workers')):\n"
        "    DataLoader(Work(), num_workers=workers)\n",
    ],
)
def test_click_and_typer(text: str, tmp_path: Path) -> None:
    assert judged(tmp_path, text) == ["likely"]


def test_parameters_that_are_handed_on_by_many_are_given_up_and_not_followed_for_years(tmp_path: Path) -> None:
    """Twenty callers a level, eight levels: each asks for its own parameter in turn."""
    levels = "".join(f"def level{n}(workers):\n" + f"    level{n + 1}(workers)\n" * 20 + "\n" for n in range(8))
    code = levels + "def level8(workers):\n    DataLoader(Work(), num_workers=workers)\n\nlevel0(0)\n"
    assert judged(tmp_path, code) == ["?"]


def test_parameters_that_one_caller_hands_on_are_followed(tmp_path: Path) -> None:
    code = "".join(f"def level{n}(workers):\n    level{n + 1}(workers)\n\n" for n in range(2))
    code += "def level2(workers):\n    DataLoader(Work(), num_workers=workers)\n\nlevel0(0)\n"
    assert judged(tmp_path, code) == ["certain"]
    assert judged(tmp_path, code + "level0(4)\n") == ["?"]
