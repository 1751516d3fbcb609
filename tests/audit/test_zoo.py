"""The recorded runs: with one variant's settings in their script, the planted mistake is found, its fix is not."""

from __future__ import annotations

import re
import sys
from importlib import util
from pathlib import Path

import pytest

from underfed.audit.engine import audit

CODE = Path(__file__).resolve().parents[3] / "shared" / "zoo" / "code"

#: Scenario -> rules that name its planted mistake in source.
PLANTED = {
    "workers_zero": {"T4"},
    "pageable": {"T6"},
    "item_sync": {"X5"},
    "foreach_off": {"X11"},
    "anomaly": {"T12"},
    "empty_cache": {"X12"},
    "tf32_off": {"T9"},
    "attn_math": {"X51"},
}


def specialised(name: str, variant: str) -> str:
    spec = util.spec_from_file_location("zoo_scenarios", CODE / "scenarios.py")
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["zoo_scenarios"] = module
    spec.loader.exec_module(module)
    config = module.SCENARIOS[name].config(variant)
    text = (CODE / "train.py").read_text(encoding="utf-8")
    text = re.sub(
        r'c\.get\("(\w+)"(?:, ([^()]+?|\(.*?\)))?\)',
        lambda m: repr(config[m[1]]) if m[1] in config else (m[2] or "None"),
        text,
    )
    text = re.sub(r'(?<!\w)c\["(\w+)"\]', lambda m: repr(config.get(m[1])), text)
    return text.replace("self.attn ==", repr(config.get("attn", "sdpa")) + " ==")


def rules_of(name: str, variant: str, tmp_path: Path) -> set[str]:
    path = tmp_path / f"{name}_{variant}.py"
    path.write_text(specialised(name, variant), encoding="utf-8")
    return {one.rule for one in audit([path]).findings if one.sure != "possible"}


@pytest.mark.skipif(not CODE.is_dir(), reason="the recorded runs' scripts are not here")
@pytest.mark.parametrize("name", sorted(PLANTED))
def test_the_planted_mistake_is_found_and_its_fix_is_not(name: str, tmp_path: Path) -> None:
    before, after = rules_of(name, "before", tmp_path), rules_of(name, "after", tmp_path)
    assert PLANTED[name] <= before
    assert not PLANTED[name] & after


FED = ("workers_zero", "workers_few", "transform_heavy", "store_slow", "respawn", "pageable")


@pytest.mark.skipif(not CODE.is_dir(), reason="the recorded runs' scripts are not here")
@pytest.mark.parametrize("name", FED)
def test_a_mended_run_with_a_loader_draws_no_alarm(name: str, tmp_path: Path) -> None:
    assert rules_of(name, "after", tmp_path) == set()


@pytest.mark.skipif(not CODE.is_dir(), reason="the recorded runs' scripts are not here")
def test_the_healthy_run_draws_no_alarm_on_what_it_does(tmp_path: Path) -> None:
    # Its settings reach no loader; the function that makes one is in the script all the same.
    assert rules_of("healthy_resnet", "after", tmp_path) <= {"T4", "T6"}
