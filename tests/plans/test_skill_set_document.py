"""What docs/skill-sets.md shows is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from timely.plans.grammar import plan_grammar
from timely.plans.language.parser import parse_plan
from timely.plans.language.segmenter import Segmenter
from timely.plans.skill_library import find_skill_set, load_skill_set

TEXT = (Path(__file__).parents[2] / "docs" / "skill-sets.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([^|]*)` \| (`.*?`) \| (?:`(.*)` )?\|$", TEXT, re.MULTILINE)


def test_the_file_shown_loads(tmp_path: Path) -> None:
    shown = re.search(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert shown
    file = tmp_path / "rover.yaml"
    file.write_text(shown[1], encoding="utf-8")
    rover = load_skill_set(file)
    assert plan_grammar(rover)
    assert parse_plan("drive(50);lamp(True);g('tree');", rover)


@pytest.mark.parametrize(("plan", "segments", "tail"), ROWS, ids=[plan for plan, _, _ in ROWS])
def test_the_cuts_shown(plan: str, segments: str, tail: str) -> None:
    segmenter = Segmenter(find_skill_set("drone"))
    texts = [boundary.text for boundary in (*segmenter.feed(plan), *segmenter.close())]
    assert texts == segments.strip("`").split("` · `")
    assert segmenter.finish() == tail


def test_the_table_was_found() -> None:
    assert len(ROWS) >= 4


def test_the_python_shown_runs(capsys: pytest.CaptureFixture[str]) -> None:
    shown = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert shown
    exec(compile(shown[1], "docs/skill-sets.md", "exec"), {})  # noqa: S102 - our own document
    assert capsys.readouterr().out.startswith("?s('cat')==True{ [PlanCall(skill='scan'")
