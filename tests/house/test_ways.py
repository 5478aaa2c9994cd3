"""The ways of a task and of a segment: as few files as docs/architecture.md draws, each handing over to the next."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"

WAYS: dict[str, tuple[int, tuple[str, ...]]] = {
    "A task, file by file": (
        9,
        (
            "TaskRequest",
            "TaskRequest",
            "prepare",
            "GenerationRequest",
            "generate",
            "extra_args",
            "job_spec",
            "JobSpec",
        ),
    ),
    "A segment, file by file": (
        8,
        (
            "kv_transfer_params",
            "generate",
            "TaskEvents",
            "text/event-stream",
            "__anext__",
            "ExecuteSegment",
            "submit",
        ),
    ),
}
"""Section -> most files, and what each file and the next one have in common: a call, or the type that passes."""


def files_of(section: str) -> list[Path]:
    """The files of a way in their order; a line of the list names one."""
    text = PAGE.read_text().partition(f"### {section}\n")[2].partition("\n#")[0]
    items = re.findall(r"^(\d+)\. (.+)$", text, re.MULTILINE)
    assert [int(number) for number, _ in items] == list(range(1, len(items) + 1))
    names = [re.findall(r"\w[\w/]*\.py", item) for _, item in items]
    assert all(len(name) == 1 for name in names), f"one file a line: {names}"
    return [path_of(name) for (name,) in names]


def path_of(name: str) -> Path:
    """From the root, or of a ROS 2 package."""
    return next(
        path
        for root in (ROOT, ROOT / "ros2_ws/src" / name.partition("/")[0])
        if (path := root / name).exists()
    )


def names_in(path: Path) -> set[str]:
    """Everything that a file defines, calls or mentions; ``async for`` calls ``__anext__``."""
    return {name for node in ast.walk(ast.parse(path.read_text())) for name in _names(node)}


def _names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Constant(value=str(text)):
            yield text
        case ast.AsyncFor():
            yield "__anext__"


@pytest.mark.parametrize("section", WAYS)
def test_each_file_hands_over_to_the_next(section: str) -> None:
    files, (most, joints) = files_of(section), WAYS[section]
    assert len(files) <= most
    for (giver, taker), joint in zip(pairwise(files), joints, strict=True):
        assert joint in names_in(giver) & names_in(taker), f"{giver.name} and {taker.name} share no {joint}"


def test_the_segment_begins_at_the_boundary_and_ends_at_the_robot() -> None:
    first, *_, last = files_of("A segment, file by file")
    assert "close_segment" in names_in(first)
    assert "perform" in names_in(last) & names_in(path_of("timely_robots/robot.py"))


def test_a_file_between_two_others_is_found() -> None:
    """As once: a generator around the engine's events, and a plan that sent its segments on itself."""
    assert "generate" not in names_in(path_of("timely/server/tasks/failover.py"))
    assert "__anext__" not in names_in(path_of("timely_bridge/plan_run.py"))
