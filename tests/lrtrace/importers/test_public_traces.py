"""Public traces: their own formats, written here in miniature, become jobs; broken rows are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lrtrace.errors import BadInput, UnknownName
from lrtrace.importers.public_traces import PublicTraceImport
from lrtrace.job import URGENT, TraceJob
from lrtrace.trace import Trace, write_trace

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:16:46.6805900,7433,14
"""
AZURE_2024 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
2024-05-10 00:00:01+00:00,2399,0
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,GPT-4,1087,0,1087,API log
118.5,GPT-4,417,276,693,Conversation log
"""
BURSTGPT_SESSIONS = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,abc,1.5,ChatGPT,472,18,490,Conversation log
"""
MOONCAKE = "\n".join(
    json.dumps(row)
    for row in (
        {"timestamp": 1000, "input_length": 1200, "output_length": 50, "hash_ids": [0, 1, 2]},
        {"timestamp": 1000, "input_length": 1100, "output_length": 49, "hash_ids": [0, 1, 7]},
        {"timestamp": 4000, "input_length": 600, "output_length": 3, "hash_ids": [0, 1]},
        {"timestamp": 4500, "input_length": 600, "output_length": 3, "hash_ids": [9, 1]},
    )
)


def load(folder: Path, source: str, text: str, **options: object) -> tuple[PublicTraceImport, list[TraceJob]]:
    path = folder / "data"
    path.write_text(text, encoding="utf-8")
    trace = PublicTraceImport(source, path, **options)  # type: ignore[arg-type]
    return trace, list(trace.jobs)


def test_azure(tmp_path: Path) -> None:
    trace, jobs = load(tmp_path, "azure", AZURE)
    assert [job.arrival_s for job in jobs] == pytest.approx([0.0, 4.314579, 60.0], abs=1e-6)
    assert [(job.prompt_tokens, job.tokens) for job in jobs] == [(374, 44), (396, 109), (7433, 14)]
    assert all(len(job.plan) == 1 and job.execution_s == 0 for job in jobs)
    assert (trace.tally.jobs, trace.tally.skipped) == (3, 0)


@pytest.mark.parametrize("offset", ["+00:00", "-02:00", "Z"])
def test_azure_with_offsets_and_empty_answers(tmp_path: Path, offset: str) -> None:
    trace, jobs = load(tmp_path, "azure", AZURE_2024.replace("+00:00", offset))
    assert [job.arrival_s for job in jobs] == pytest.approx([0.0, 0.007405], abs=1e-6)
    assert trace.tally.skipped == 1


def test_burstgpt(tmp_path: Path) -> None:
    trace, jobs = load(tmp_path, "burstgpt", BURSTGPT)
    assert [(job.arrival_s, job.prompt_tokens, job.tokens) for job in jobs] == [
        (0, 472, 18),
        (113.5, 417, 276),
    ]
    assert trace.tally.skipped == 1
    assert jobs[1].extra == {"model": "GPT-4", "log_type": "Conversation log"}
    _, jobs = load(tmp_path, "burstgpt", BURSTGPT_SESSIONS)
    assert jobs[0].agent == "session-abc"


def test_mooncake_may_count_from_1970(tmp_path: Path) -> None:
    _, jobs = load(tmp_path, "mooncake", MOONCAKE.replace('"timestamp": ', '"timestamp": 17000000'))
    assert [job.arrival_s for job in jobs] == [0.0, 0.0, 3.0, 3.5]


def test_mooncake_knows_which_prefix_was_seen(tmp_path: Path) -> None:
    _, jobs = load(tmp_path, "mooncake", MOONCAKE)
    assert [job.arrival_s for job in jobs] == [0.0, 0.0, 3.0, 3.5]
    assert [job.shared_prefix_tokens for job in jobs] == [0, 1024, 600, 0]
    assert jobs[1].extra == {"hash_ids": [0, 1, 7]}


def test_limit_speed_and_utility(tmp_path: Path) -> None:
    trace, jobs = load(tmp_path, "azure", AZURE, limit=2, speed=2.0, tuf=URGENT, network_s=0.01)
    assert [job.arrival_s for job in jobs] == pytest.approx([0.0, 2.1572895], abs=1e-5)
    assert jobs[0].tuf == URGENT
    assert trace.header.network_s == 0.01
    assert trace.header.extra["imported"]["limit"] == 2
    assert [job.job for job in trace.jobs] == [0, 1]  # can be read again


def test_imported_traces_are_valid(tmp_path: Path) -> None:
    trace, jobs = load(tmp_path, "mooncake", MOONCAKE)
    path = tmp_path / "x.lrtrace.jsonl"
    write_trace(path, trace.header, trace.jobs)
    assert list(Trace(path)) == jobs


@pytest.mark.parametrize(
    ("source", "text", "line", "reason"),
    [
        ("azure", AZURE.replace("374,44", "x,44"), 2, "ContextTokens: must be a count of tokens, got 'x'"),
        ("azure", AZURE.replace("396,109", "396,-1"), 3, "GeneratedTokens: must be a count"),
        ("azure", AZURE.replace("396,109", "396,1.5"), 3, "GeneratedTokens: must be a count"),
        ("azure", AZURE.replace("2023-11-16 18:15:50", "yesterday"), 3, "TIMESTAMP: must be a date and time"),
        ("azure", AZURE.replace("18:15:50", "18:15:40"), 3, "before that of the row above"),
        ("azure", AZURE.replace("396,109", "396"), 3, "expected 3 fields"),
        ("azure", AZURE.replace("396,109", "396,109,1"), 3, "expected 3 fields"),
        ("azure", AZURE.replace("ContextTokens", "Tokens"), 1, "column 'ContextTokens' is missing"),
        ("azure", "", 1, "column 'TIMESTAMP' is missing"),
        ("burstgpt", BURSTGPT.replace("118.5", "nan"), 4, "Timestamp: must be seconds"),
        (
            "burstgpt",
            BURSTGPT.replace("118.5", "1700000000000"),
            4,
            "Timestamp: must be seconds, 0 to 1e+12, got",
        ),
        (
            "burstgpt",
            BURSTGPT.replace("Log Type", "Request tokens"),
            1,
            "column 'Request tokens' is there twice",
        ),
        ("burstgpt", BURSTGPT.replace("118.5", ""), 4, "Timestamp: must be seconds"),
        ("burstgpt", BURSTGPT.replace("417", "1e99"), 4, "Request tokens: must be a count"),
        ("mooncake", MOONCAKE.replace('"timestamp": 1000,', "", 1), 1, "timestamp: is missing"),
        (
            "mooncake",
            MOONCAKE.replace("4500", "true"),
            4,
            "timestamp: must be milliseconds, 0 to 1e+15, got True",
        ),
        ("mooncake", MOONCAKE.replace("[0, 1, 7]", '["a"]'), 2, "hash_ids: must be a list of integers"),
        ("mooncake", MOONCAKE + "\n{", 5, "not valid JSON"),
    ],
)
def test_broken_rows_are_named(tmp_path: Path, source: str, text: str, line: int, reason: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(tmp_path, source, text)
    assert str(caught.value).startswith(f"{tmp_path / 'data'}:{line}: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("mooncake", ""),
        ("azure", AZURE.splitlines()[0]),
        ("burstgpt", BURSTGPT.replace(",18,", ",0,").partition("118.5")[0]),
    ],
)
def test_a_source_without_a_request_is_an_error_and_leaves_no_trace(
    tmp_path: Path, source: str, text: str
) -> None:
    (tmp_path / "data").write_text(text, encoding="utf-8")
    trace = PublicTraceImport(source, tmp_path / "data")
    with pytest.raises(BadInput, match="data: holds no request with a prompt and an answer"):
        write_trace(tmp_path / "x.lrtrace.jsonl", trace.header, trace.jobs)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_bad_options(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="unknown trace format 'x'; known: azure, burstgpt, mooncake"):
        load(tmp_path, "x", "")
    with pytest.raises(BadInput, match="speed: must be positive"):
        load(tmp_path, "azure", AZURE, speed=0.0)
    with pytest.raises(BadInput, match="limit: must be 1"):
        load(tmp_path, "azure", AZURE, limit=0)
    (tmp_path / "data").write_bytes(b"TIMESTAMP,ContextTokens,GeneratedTokens\n\xff\xfe,1,1\n")
    with pytest.raises(BadInput, match="not UTF-8"):
        list(PublicTraceImport("azure", tmp_path / "data").jobs)
