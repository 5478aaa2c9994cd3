"""Which tokens of the composed plans grammar and names force, so that ``timely serve --jump-ahead`` drafts them.

``scripts/measure_forced_tokens.py`` measures that with the packaged tokenizer and writes ``forced_tokens.yaml``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from lrtrace.yaml_file import read_lrtrace_yaml
from timely.engines.replay_types import PlannedSegment, PlannedTask

FORCED_TOKENS_FILE = Path(__file__).with_name("forced_tokens.yaml")


def bench_forced_tokens(tasks: Iterable[PlannedTask]) -> list[PlannedTask]:
    """The tasks with their plans' forced tokens; plans that the table lacks are left as they are."""
    table = _read_forced_tokens()
    return [
        replace(
            task, plan=tuple(_with_forced_segment(table[task.skill_set], segment) for segment in task.plan)
        )
        if task.skill_set in table
        else task
        for task in tasks
    ]


def _with_forced_segment(segments: Mapping[str, str], segment: PlannedSegment) -> PlannedSegment:
    """The packaged tokenizer may need another number of tokens than the trace: places are scaled."""
    marks = segments.get(segment.text)
    if marks is None:
        return segment
    places = (place * len(marks) // segment.tokens for place in range(segment.tokens))
    return replace(segment, forced=tuple(marks[place] == "1" for place in places))


@cache
def _read_forced_tokens() -> Mapping[str, Mapping[str, str]]:
    table: Mapping[str, Mapping[str, str]] = read_lrtrace_yaml(FORCED_TOKENS_FILE).value
    return table
