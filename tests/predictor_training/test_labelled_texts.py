"""Labelled texts become predictor files, judged by texts held back; what is no label is result with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lrtrace.errors import BadInput
from timely.cli.main import run_timely_command
from timely.core.errors import InvalidInput
from timely.disciplines.predictors.request_annotator import PredictorFiles
from timely.predictor_training import labelled_texts

WORDS = ("bleeding", "choking", "broken", "tired", "curious")
WHO = ("man", "child", "dog", "robot", "neighbour", "cook", "pilot", "nurse")


def rows() -> list[tuple[str, int]]:
    return [(f"{word} {who}", level) for level, word in enumerate(WORDS) for who in WHO]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.csv"
    path.write_text("text,level\n" + "".join(f'"{text}",{level}\n' for text, level in rows()))
    return path


def test_csv_json_lines_and_traces_say_the_same(tmp_path: Path, texts: Path) -> None:
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": t, "urgency": u}) + "\n" for t, u in rows()))
    trace = tmp_path / "t.lrtrace.jsonl"
    head = {"lrtrace": 1, "name": "t", "seed": 1, "network_s": 0.0}
    jobs = [
        {"job": i, "arrival_s": float(i), "agent": "a", "robot": "", "skill_set": "", "task": text, "urgency": level,
         "prompt_tokens": 5, "plan": [{"text": "x", "tokens": 10 * (1 + level), "execution_s": 0.0}]}
        for i, (text, level) in enumerate(rows())
    ]  # fmt: skip
    trace.write_text("".join(json.dumps(line) + "\n" for line in [head, *jobs]))
    labelled = labelled_texts.read_labelled_texts([texts], "urgency")
    assert (labelled.texts, labelled.labels) == tuple(map(list, zip(*rows(), strict=True)))
    assert labelled_texts.read_labelled_texts([lines], "urgency") == labelled
    assert labelled_texts.read_labelled_texts([trace], "urgency") == labelled
    assert labelled_texts.read_labelled_texts([trace], "output_tokens").labels == [
        10 * (1 + level) for level in labelled.labels
    ]
    assert len(labelled_texts.read_labelled_texts([texts, lines], "urgency")) == 2 * len(labelled)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.csv", "text,level\nhelp,5\n", r"a\.csv:2: urgency must be 0 to 4, got '5'"),
        ("a.csv", "text,level\nhelp,very\n", r"a\.csv:2: urgency must be"),
        ("a.csv", "text,level\nhelp,1.5\n", r"a\.csv:2: urgency must be"),
        ("a.csv", "text,level\n,1\n", r"a\.csv:2: no text"),
        ("a.csv", "words,level\nhelp,1\n", r"a\.csv:1: column 'text' is missing"),
        ("a.csv", "text,severity\nhelp,1\n", r"a\.csv:2: no urgency"),
        ("a.csv", "", r"a\.csv:1: column 'text' is missing"),
        ("a.csv", "text,level\nhelp,1,2\n", r"a\.csv:2: expected 2 fields"),
        ("a.jsonl", '{"text": "help", "urgency": 0}\n[1]\n', r"a\.jsonl:2: must be an object"),
        ("a.jsonl", "help\n", r"a\.jsonl:1: not valid JSON"),
        ("a.jsonl", '{"text": ["help"], "urgency": 0}\n', r"a\.jsonl:1: no text"),
    ],
)
def test_what_is_no_labelled_text_is_told_with_its_line(
    tmp_path: Path, name: str, content: str, complaint: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises((InvalidInput, BadInput), match=complaint):
        labelled_texts.read_labelled_texts([path], "urgency")


def test_what_is_no_text_file_is_told(tmp_path: Path) -> None:
    binary = tmp_path / "a.csv"
    binary.write_bytes(b"text,level\n\xff\xfe,1\n")
    with pytest.raises(BadInput, match="not UTF-8 text"):
        labelled_texts.read_labelled_texts([binary], "urgency")
    with pytest.raises(BadInput, match="cannot read it"):
        labelled_texts.read_labelled_texts([tmp_path / "none.csv"], "urgency")


def test_no_text_is_both_trained_on_and_held_back() -> None:
    """A trace has the same tasks many times: rows were held back one by one, and the judge had seen their texts."""
    labelled = labelled_texts.LabelledTexts(*map(list, zip(*(8 * rows()), strict=True)))
    training, held_back = labelled.split(seed=3)
    assert set(training.texts).isdisjoint(held_back.texts)
    assert (len(set(held_back.texts)), len(held_back)) == (8, 64)
    assert sorted(
        zip(training.texts + held_back.texts, training.labels + held_back.labels, strict=True)
    ) == sorted(8 * rows())


def test_the_command_line_trains_judges_and_the_server_reads_it(tmp_path: Path, texts: Path) -> None:
    urgency, lengths = tmp_path / "urgency.npz", tmp_path / "lengths.npz"
    result = tmp_path / "told.json"
    assert (
        run_timely_command(["predictor", "urgency", str(texts), "-o", str(urgency), "--json", str(result)])
        == 0
    )
    assert json.loads(result.read_text())["judged"]["right"] >= 0.75
    tokens = tmp_path / "tokens.jsonl"
    tokens.write_text("".join(json.dumps({"text": t, "tokens": 20 * (1 + u)}) + "\n" for t, u in rows()))
    assert (
        run_timely_command(["predictor", "lengths", str(tokens), "-o", str(lengths), "--json", str(result)])
        == 0
    )
    judged = json.loads(result.read_text())["judged"]
    assert judged["error_tokens"] < judged["error_of_one_guess_tokens"]
    assert run_timely_command(["predictor", "evaluate", str(urgency), str(texts), "--json", str(result)]) == 0
    assert json.loads(result.read_text())["judged"]["right"] == 1.0
    assert run_timely_command(["predictor", "evaluate", str(lengths), str(tokens)]) == 0
    served = PredictorFiles.read([str(urgency), str(lengths)])
    assert served.urgency is not None
    assert served.lengths is not None
    assert served.urgency.predict(["choking pilot"])[0].level == 1
    assert served.lengths.predict(["curious cook"])[0].tokens == 100.0


def test_a_wrong_file_is_one_line_and_exit_code_2(
    tmp_path: Path, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.npz"
    assert run_timely_command(["predictor", "evaluate", str(texts), str(texts)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    from timely.disciplines.predictors.history import HistoryPredictor

    HistoryPredictor().save(history)
    assert run_timely_command(["predictor", "evaluate", str(history), str(texts)]) == 2
    assert "predicts neither urgency nor lengths" in capsys.readouterr().err
    for files in ([str(texts)], [str(tmp_path / "missing.npz")], ["none", "examples"]):
        arguments = [part for name in files for part in ("--predictor", name)]
        assert run_timely_command(["serve", "--engine", "scripted", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert run_timely_command(["serve", "--engine", "scripted", "--predict", "sometimes"]) == 2
    assert "unknown prediction mode 'sometimes'; known: full, immediate" in capsys.readouterr().err
