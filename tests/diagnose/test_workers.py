"""Workers are told from training processes by what they wrote, whatever their first line calls them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from underfed.diagnose.run import diagnose
from underfed.diagnose.traced import read_window
from underfed.diagnosis import to_json
from underfed.recording.read import read

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "h200"


@pytest.mark.parametrize("name", ["respawn", "workers_few"])
def test_a_spawned_worker_that_began_as_main_is_a_worker_all_the_same(name: str, tmp_path: Path) -> None:
    copy = tmp_path / "recording"
    shutil.copytree(FIXTURES / f"{name}.before", copy)
    changed = 0
    for path in copy.glob("p*.jsonl"):
        head, _, rest = path.read_text(encoding="utf-8").partition("\n")
        line = json.loads(head)
        if line["role"] == "worker":
            path.write_text(json.dumps({**line, "role": "main", "worker": None}) + "\n" + rest, encoding="utf-8")
            changed += 1
    assert changed > 0
    one = json.loads(to_json(diagnose(read(FIXTURES / f"{name}.before"), read_window)))
    other = json.loads(to_json(diagnose(read(copy), read_window)))
    assert other["verdict"] == one["verdict"]
    assert [(f["rule"], f["gain"]) for f in other["findings"]] == [(f["rule"], f["gain"]) for f in one["findings"]]
