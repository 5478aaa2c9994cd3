"""Events out of bytes, however they are cut; the client imports nothing of the server."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timely.client.events import ClientEventDecoder, ClientPlanState, ServerEvent
from timely.core.errors import EngineFailed
from timely.server.tasks.task_events import KEEPALIVE, server_task_event_bytes

TEXTS = st.text(max_size=30)


@given(
    texts=st.lists(TEXTS, max_size=6),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    crlf=st.booleans(),
)
def test_what_the_server_encodes_comes_back_however_it_is_cut(
    texts: list[str], cuts: list[int], crlf: bool
) -> None:
    data = b"".join(
        server_task_event_bytes(number, "segment", {"text": text}) + KEEPALIVE
        for number, text in enumerate(texts, start=1)
    )
    if crlf:
        data = data.replace(b"\n", b"\r\n")
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    decoder = ClientEventDecoder()
    events = [event for start, end in pairwise(places) for event in decoder.feed(data[start:end])]
    assert events == [
        ServerEvent(number, "segment", {"text": text}) for number, text in enumerate(texts, start=1)
    ]


def segment(event_id: int, index: int) -> ServerEvent:
    data = {
        "task_id": "t", "index": index, "text": "x", "calls": [], "tokens": 1, "ready_s": 0.0,
        "execution_s": 1.0, "due_s": 1.0, "blocking": False,
    }  # fmt: skip
    return ServerEvent(event_id, "segment", data)


def test_repeats_are_dropped_and_gaps_are_errors() -> None:
    state = ClientPlanState()
    taken = [state.take(segment(number + 2, number)) for number in (0, 1, 1, 0, 2)]
    assert [part.index if part else None for part in taken] == [0, 1, None, None, 2]
    with pytest.raises(EngineFailed, match="segment 4 came instead of 3"):
        state.take(segment(9, 4))


def test_a_segment_has_the_fingerprint_of_its_skill_set_where_the_server_gives_one() -> None:
    state, own = ClientPlanState(), segment(2, 1)
    parts = [
        state.take(segment(1, 0)),
        state.take(replace(own, data={**own.data, "skill_set_fingerprint": "ab12"})),
    ]
    assert [part.skill_set_fingerprint for part in parts if part] == ["", "ab12"]


@pytest.mark.process
def test_a_robot_program_loads_no_server_and_no_engine() -> None:
    code = "import sys, timely.client; print('\\n'.join(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout.split()
    for heavy in (
        "fastapi",
        "uvicorn",
        "starlette",
        "torch",
        "vllm",
        "timely.server",
        "timely.engines",
        "lrtrace",
    ):
        assert heavy not in loaded
