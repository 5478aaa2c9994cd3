"""How much longer than expected a segment may take because it closes a loop.

The server counts a loop that a return may end as one round, so that the next segment comes in time.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from timely.client import Segment

_PART = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
    r"|(?P<open>(?:(?<![\w.<>=])(?P<count>[0-9]{1,4})\s*)?\{)|(?P<close>\})|(?P<return>->(?!\s*\{))",
    re.DOTALL,
)


@dataclass(slots=True)
class _Block:
    count: int
    before_s: float
    """Expected time of the plan before it, seconds."""
    returns: bool = False


def bridge_further_loop_rounds_s(segments: Iterable[Segment]) -> float:
    """The time of the rounds that the last of a plan's segments may add to its expected time, seconds."""
    blocks: list[_Block] = []
    so_far_s = further_s = 0.0
    for segment in segments:
        before_s, further_s = so_far_s, 0.0
        so_far_s += segment.execution_s
        for part in _PART.finditer(segment.text):
            if part["open"]:
                blocks.append(_Block(int(part["count"] or 1), before_s))
            elif part["return"]:
                for block in blocks:
                    block.returns = True
            elif part["close"] and blocks:
                block = blocks.pop()
                if block.returns:
                    rounds_s = (block.count - 1) * (so_far_s - block.before_s)
                    further_s += rounds_s
                    so_far_s += rounds_s
    return further_s
