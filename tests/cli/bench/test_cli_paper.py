"""``timely bench paper``: the rows of its table."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from timely.bench.papers.claims import PaperRule, paper_claim
from timely.bench.papers.run_context import PaperEvaluation
from timely.cli.bench import make_app
from timely.cli.bench import paper as command
from timely.cli.bench.paper import HEADINGS, cli_claim_row
from timely.cli.main import run_timely_command

KEYS = {"id", "what", "paper", "ours", "interval", "unit", "verdict", "note", "subject"}


def test_a_claim_s_interval_stands_beside_its_mean() -> None:
    row = {"what": "x", "paper": 2.0, "ours": 1.0, "unit": "s", "verdict": None, "interval": None, "note": ""}
    assert cli_claim_row(row) == ("x", "2", "1", "s", "", "")
    cells = cli_claim_row(row | {"interval": [0.51234567, 1.5], "verdict": "holds"})
    assert cells == ("x", "2", "1 (0.5123 to 1.5)", "s", "holds", "")
    assert len(cells) == len(HEADINGS)


def test_the_json_holds_each_claim_and_no_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(evaluation: PaperEvaluation) -> list[dict[str, object]]:
        values = [float(seed) for seed in evaluation.seeds]
        return [
            paper_claim("a", "literal", 2.0, values, "s", PaperRule.near(2.0)),
            paper_claim("b", "ours", None, values, "s", PaperRule.at_least(-1.0), subject="ours"),
            paper_claim("c", "nothing measured", 1.0, None, "", PaperRule.near(1.0)),
        ]

    monkeypatch.setattr(command, "import_module", lambda name: SimpleNamespace(run_paper_evaluation=run))
    file, table = tmp_path / "claims.json", tmp_path / "claims.md"
    arguments = f"paper semantic --seeds 3 --out {tmp_path} --json {file} --markdown {table}".split()
    assert CliRunner().invoke(make_app({}), arguments, catch_exceptions=False).exit_code == 0
    result = json.loads(file.read_text())
    assert set(result) == {"paper", "seeds", "claims"}
    assert [set(row) for row in result["claims"]] == [KEYS] * 3
    assert [row["subject"] for row in result["claims"]] == ["literal", "ours", "literal"]
    assert result["claims"][0]["interval"][0] < 2.0 < result["claims"][0]["interval"][1]
    assert [row["verdict"] for row in result["claims"]] == ["not met", "met", "not exercised"]
    for title in command.SUBJECTS.values():
        assert f"## {title}" in table.read_text()


def test_a_resume_file_that_cannot_be_read_leaves_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert (
        run_timely_command(["bench", "paper", "semantic", "--out", str(out), "--resume", str(tmp_path)]) == 2
    )
    assert str(tmp_path) in capsys.readouterr().err
    assert not out.exists()
