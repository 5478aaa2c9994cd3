"""Each paper has one table of constants; each constant says where the paper states it, or that it does not."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from timely.disciplines.justitia import constants as justitia
from timely.disciplines.predictors.app_cost import predictor_kv_token_time, predictor_weighted_tokens
from timely.disciplines.requirements import LEVELS
from timely.disciplines.semantic import constants as semantic

pytestmark = pytest.mark.paper

PLACE = re.compile(
    r"\b(sections? [\dIVX]+|(Eq|Fig|Alg)\. \d|footnote \d|not in the paper|published simulation)"
)


@pytest.mark.parametrize("paper", ["timelyllm", "semantic", "justitia", "sagesched", "laps_sd"])
def test_each_constant_cites_its_section(paper: str) -> None:
    module = import_module(f"timely.disciplines.{paper}.constants")
    lines = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
    names = 0
    for number, line in enumerate(lines):
        if isinstance(line, ast.Assign):
            note = lines[number + 1]
            assert isinstance(note, ast.Expr), ast.unparse(line)
            assert isinstance(note.value, ast.Constant), ast.unparse(line)
            assert PLACE.search(str(note.value.value)), ast.unparse(line)
            names += 1
    assert names >= 3


def test_semantic_s_constants_are_the_papers() -> None:
    assert semantic.URGENCY_LEVELS == LEVELS == 5  # section 3.1
    assert semantic.CONCURRENT_REQUESTS == 5  # section 4
    assert semantic.SPIKE_REQUESTS == 100  # section 4
    assert (semantic.BATCH, semantic.BASELINE_BATCH, semantic.BUCKET_TOKENS) == (16, 12, 50)  # its simulation
    assert semantic.SMALL_BATCH == 8  # scripts of its simulation for Fig. 4


def test_justitia_s_constants_are_the_papers() -> None:
    assert justitia.KV_BLOCKS == 459  # section III-A
    assert justitia.TRAINING_SAMPLES == 100  # section IV-B
    # Eq. 1 for p = 3, d = 4, and VTC's cost of section V-D.
    assert predictor_kv_token_time(3, 4) == 3 * 4 + 4**2 / 2 == 20.0
    assert predictor_weighted_tokens(3, 4) == 3 + 2 * 4 == 11.0
