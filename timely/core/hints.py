"""What a request says of itself to the scheduler: carried whole from the server to the job table."""

from dataclasses import dataclass, fields

from timely.core.utility import NORMAL, TimeUtility


@dataclass(frozen=True, slots=True)
class RequestHints:
    """What disciplines may go by. Every field has a default that claims nothing.

    Attributes:
        utility: the time-utility function of the response.
        urgency: level 0 (most urgent) to 4, or None.
        app: name of the application the request belongs to, or None.
        app_requests: number of requests that application will send in all, or None.
        expected_tokens: predicted output tokens, or None.
        pace_s: longest time from a token to the next that the reader of a plain request bears, seconds. None: as
            long as the first one may take.
        priority: vLLM's own priority; smaller is more important.
        network_s: one-way delay to the robot, seconds.
        agent: name of the robot, or empty.
        promised: the server admitted it on a prediction that its response comes in time.
    """

    utility: TimeUtility = NORMAL
    urgency: int | None = None
    app: str | None = None
    app_requests: int | None = None
    expected_tokens: float | None = None
    pace_s: float | None = None
    priority: float = 0.0
    network_s: float = 0.0
    agent: str = ""
    promised: bool = False


NO_HINTS = RequestHints()
"""A request that says nothing."""

HINTS = frozenset(field.name for field in fields(RequestHints))
"""Names of the fields."""
