"""The rivals' own headline workloads: requests of the kinds, and with the aims, that each was made for.

Every request says its aim by what ``timely serve`` understands:

* **A chat** is an ordinary request. Its time-utility function has the deadline of the first token, and it names a pace.
* **A whole answer** is a task of one segment, so its deadline is that of the last token. Its length is not told.
* **An application** is a chain of whole answers with ``app`` and ``app_requests``.

Height and slope of all functions are the defaults, so the aims alone differ. The rivals read the same, a deadline of
the first action and a pace. That action is the first token of a chat and the last one of a whole answer.

Kinds of requests and aims are the papers', where the text says so. Rates, lengths and shares are our reading; lengths
are log-normal as in Azure's public traces.
"""

import numpy as np

from timely.bench.capacity.lengths import (
    CODE,
    CONVERSATION,
    MAX_ANSWER_TOKENS,
    CapacityLengthDistribution,
    capacity_request,
    poisson_arrivals,
)
from timely.core.hints import RequestHints
from timely.core.utility import NORMAL, TimeUtility
from timely.engines.replay_types import PlannedSegment, PlannedTask

INTERACTIVE_S, INTERACTIVE_PACE_S = 6.0, 0.05
"""Deadline of the first token, and pace, of QoServe's interactive requests (Niyama's too)."""

BATCH_S = (60.0, 180.0)
"""Deadlines of QoServe's two tiers of batch requests, a tenth of the paper's 600 and 1,800 s.

The paper serves for four hours, a point of ours for minutes: with its own deadlines no batch request would be late.
"""

QOSERVE_RATE = 1.0
"""Requests a second at load 1, a third of each tier."""

CHAT_S, CHAT_PACE_S = 2.0, 0.1
"""Deadline of the first token, and pace, of the chats beside deadlines and applications: our reading."""

ANSWER_S = 40.0
"""Deadline of a whole answer, and for each request of an application: our reading."""

STAGES = (2, 3, 4)
"""Requests of an application, one after the other, each number as likely."""

JITSERVE_RATE = 0.6
"""Chats, whole answers and applications a second at load 1, a third each."""

LOOSE_SLOWDOWN, TIGHT_SLOWDOWN = 5.0, 3.0
"""Deadlines of SLOs-Serve's prompts over their time on an empty machine; 5 is our reading of its loose ones."""

LOOSE_PACE_S, TIGHT_PACE_S = 0.1, 0.05
"""SLOs-Serve's paces."""

EMPTY_MACHINE_S = (0.0165, 8.0e-5)
"""Time of a prompt on an empty machine, and of each of its tokens, seconds: profile ``rtx4090-llama3-8b``."""

DOCUMENT = CapacityLengthDistribution((2500.0, 0.4), (151.0, 0.859))
"""Documents to be summarised: made up, with answers like a conversation's."""

SLOS_RATE = 0.25
"""Requests a second at load 1, a third chats, coding and summaries each."""

PERIODS_S = (0.5, 1.0, 2.0)
"""From one inference of a robot to the next; also its deadline. Robots of each kind take turns."""

POLICY_TOKENS = (288, 7)
"""An image of 256 patches with an instruction, and the tokens of an action, as in OpenVLA."""

POLICY_ROBOTS = 4
"""At load 1."""

PERIOD_JITTER = 0.05
"""Largest delay of a robot's request, as a share of its period."""


def qoserve_capacity_requests(load: float, seed: int, seconds: float) -> list[PlannedTask]:
    """Interactive requests and two tiers of batch requests on one machine (QoServe, Niyama)."""
    draw = np.random.default_rng([seed, 2])
    tasks = []
    for number, arrival_s in enumerate(poisson_arrivals(draw, QOSERVE_RATE * load, seconds)):
        tier = int(draw.integers(3))
        lengths = CONVERSATION.draw(draw)
        if tier == 0:
            tasks.append(
                _chat_task(f"interactive-{number}", arrival_s, lengths, INTERACTIVE_S, INTERACTIVE_PACE_S)
            )
        else:
            tasks.append(_whole_answer_task(f"batch-{number}", arrival_s, lengths, BATCH_S[tier - 1]))
    return tasks


def jitserve_capacity_requests(load: float, seed: int, seconds: float) -> list[PlannedTask]:
    """Chats with paces, whole answers with deadlines, and applications with one deadline each (JITServe).

    An application's deadline is the sum of its requests' deadlines, and each request carries its own.
    """
    draw = np.random.default_rng([seed, 3])
    tasks = []
    for number, arrival_s in enumerate(poisson_arrivals(draw, JITSERVE_RATE * load, seconds)):
        kind = int(draw.integers(3))
        if kind == 0:
            tasks.append(
                _chat_task(f"chat-{number}", arrival_s, CONVERSATION.draw(draw), CHAT_S, CHAT_PACE_S)
            )
            continue
        if kind == 1:
            tasks.append(_whole_answer_task(f"answer-{number}", arrival_s, CONVERSATION.draw(draw), ANSWER_S))
            continue
        stages = int(draw.choice(STAGES))
        names = [f"app-{number}-{stage}" for stage in range(stages)]
        for stage, name in enumerate(names):
            tasks.append(
                _whole_answer_task(
                    name, arrival_s, CONVERSATION.draw(draw), ANSWER_S, app=f"chain/{number}",
                    app_requests=stages, after=tuple(names[max(0, stage - 1) : stage]),
                )
            )  # fmt: skip
    return tasks


def slos_serve_capacity_requests(load: float, seed: int, seconds: float) -> list[PlannedTask]:
    """Chats, coding and summaries, each with a deadline of its prompt and a pace (SLOs-Serve).

    Chats are loose in both, coding is tight in its pace, and summaries in their prompts.
    """
    draw = np.random.default_rng([seed, 4])
    kinds = (
        ("chat", CONVERSATION, LOOSE_SLOWDOWN, LOOSE_PACE_S),
        ("code", CODE, LOOSE_SLOWDOWN, TIGHT_PACE_S),
        ("summary", DOCUMENT, TIGHT_SLOWDOWN, LOOSE_PACE_S),
    )
    tasks = []
    for number, arrival_s in enumerate(poisson_arrivals(draw, SLOS_RATE * load, seconds)):
        name, lengths, slowdown, pace_s = kinds[int(draw.integers(3))]
        prompt, answer = lengths.draw(draw)
        base_s, token_s = EMPTY_MACHINE_S
        ert_s = round(slowdown * (base_s + token_s * prompt), 6)
        tasks.append(_chat_task(f"{name}-{number}", arrival_s, (prompt, answer), ert_s, pace_s))
    return tasks


def inferential_capacity_requests(load: float, seed: int, seconds: float) -> list[PlannedTask]:
    """Robots that ask a policy for their next action again and again, each before it needs the next (inferential).

    The urgency level, which that scheduler reads, is that of the robot's period.
    """
    draw = np.random.default_rng([seed, 5])
    prompt, answer = POLICY_TOKENS
    tasks = []
    for robot in range(max(1, round(POLICY_ROBOTS * load))):
        kind = robot % len(PERIODS_S)
        period_s = PERIODS_S[kind]
        hints = RequestHints(utility=_chat_utility(period_s), urgency=2 * kind, agent=f"robot-{robot}")
        begin_s = draw.uniform(0.0, period_s)
        for turn in range(int((seconds - begin_s) / period_s)):
            arrival_s = begin_s + (turn + PERIOD_JITTER * draw.random()) * period_s
            tasks.append(
                PlannedTask(
                    f"{robot}-{turn}", round(arrival_s, 6), (PlannedSegment("", answer, period_s),), prompt,
                    hints=hints, robot="policy", skill_set="policy", segment_bound=answer,
                )
            )  # fmt: skip
    return tasks


def _chat_utility(ert_s: float) -> TimeUtility:
    return TimeUtility(ert_s, NORMAL.alpha, NORMAL.beta)


def _chat_task(
    name: str, arrival_s: float, lengths: tuple[int, int], ert_s: float, pace_s: float
) -> PlannedTask:
    hints = RequestHints(utility=_chat_utility(ert_s), pace_s=pace_s)
    return capacity_request(name, arrival_s, lengths, hints=hints, plain=True)


def _whole_answer_task(
    name: str,
    arrival_s: float,
    lengths: tuple[int, int],
    ert_s: float,
    *,
    app: str | None = None,
    app_requests: int | None = None,
    after: tuple[str, ...] = (),
) -> PlannedTask:
    hints = RequestHints(utility=_chat_utility(ert_s), app=app, app_requests=app_requests)
    return capacity_request(
        name, arrival_s, lengths, hints=hints, segment_bound=MAX_ANSWER_TOKENS, after=after, whole_answer=True
    )
