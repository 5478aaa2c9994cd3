"""Reads skill calls from plan text and estimates execution times and tokens.

It reads calls of MiniSpec and of flat call lists (``mf(100)``, ``move_to('red box')``) and skips control flow. It does
not check whether a plan is well formed.
"""

import re
from dataclasses import dataclass

import numpy as np

from lrtrace.models import How
from lrtrace.robot_profile import RobotProfile

QUOTED_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_CALL = re.compile(rf"(?:{QUOTED_TEXT})|(?P<word>\w++)(?P<open>\s*+\()?")
_NAME = re.compile(r"[A-Za-z_]\w*")
_ARGUMENT = re.compile(rf"\s*+(?:(?P<text>{QUOTED_TEXT})|(?P<plain>[^'\",()]*+))\s*+(?P<end>[,)])")
_CALL_START = re.compile(r"\s*[A-Za-z_]\w*\s*\(")
_PIECE = re.compile(r" ?[^\W\d_]+|\d+| ?(?:[^\w\s]|_)+|\s+")


@dataclass(frozen=True, slots=True)
class TraceCall:
    """One skill call. Numbers are floats, texts have no quotes."""

    skill: str
    args: tuple[float | str, ...]


def parse_trace_calls(text: str) -> list[TraceCall]:
    """Every complete call in ``text``, in order. Linear in the length where quotation marks come in pairs."""
    calls: list[TraceCall] = []
    position = 0
    while (match := _CALL.search(text, position)) is not None:
        position = match.end()
        name = _NAME.search(match["word"]) if match["open"] is not None else None
        if name is None:
            continue
        args: list[float | str] = []
        at = position
        while (argument := _ARGUMENT.match(text, at)) is not None:
            at = argument.end()
            if argument["text"] is not None:
                args.append(re.sub(r"\\(.)", r"\1", argument["text"][1:-1]))
            elif (plain := argument["plain"].rstrip()) or argument["end"] == "," or args:
                args.append(_trace_call_value(plain))
            if argument["end"] == ")":
                calls.append(TraceCall(name[0], tuple(args)))
                position = at
                break
        else:
            if _CALL_START.match(text, at):  # the argument is another call, which the next round reads
                calls.append(TraceCall(name[0], tuple(args)))
    return calls


def _trace_call_value(plain: str) -> float | str:
    try:
        return float(plain)
    except ValueError:
        return plain


def robot_profile_execution_s(
    text: str, profile: RobotProfile, how: How = "estimate", rng: np.random.Generator | None = None
) -> float:
    """Execution time of all calls in ``text`` in sequence, seconds. ``sample`` draws from ``rng``.

    Raises:
        UnknownName: the profile lacks a skill. BadInput: an argument has no execution time.
        ValueError: ``sample`` without ``rng``.
    """
    total = 0.0
    for call in parse_trace_calls(text):
        total += profile.execution_s(call.skill, call.args, how, rng)
    return total


def count_trace_tokens(text: str) -> int:
    """Estimated number of tokens of ``text`` with a byte-pair tokenizer like Llama 3's; at least 1.

    A word of up to eight letters, three digits, or a cluster of punctuation count as one token. Over the benchmark
    plans the estimate is within 10% of SmolLM2's tokenizer.
    """
    total = 0
    for match in _PIECE.finditer(text):
        piece = match.group().strip()
        if not piece:
            total += 1
        elif piece[0].isalpha():
            total += 1 + (len(piece) - 1) // 8
        else:
            total += (len(piece) + 2) // 3
    return max(1, total)
