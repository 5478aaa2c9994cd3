"""A Timely server without a model, in a process of its own: the text of a task is its plan."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from timely.core.child_process import core_stop_event
from timely.core.errors import TimelyError
from timely.core.files import core_write_file
from timely.engines.base import GenerationRequest
from timely.engines.scripted import ScriptedEngine
from timely.engines.scripts import ScriptedSegment
from timely.plans.robot_profiles import find_plan_robot_profile
from timely.plans.skill_library import find_skill_set
from timely.plans.timing import plan_segment_execution_s
from timely.server.app import create_app
from timely.server.server_thread import ServerThread
from timely.server.settings import ServerSettings
from timely_ros_bench.faults.motions import (
    PLANS_APART,
    SEGMENTS_APART,
    TOKEN_S,
    TOKENS,
    fault_round_plan_number,
)


def planned_bench_segments(request: GenerationRequest) -> list[ScriptedSegment]:
    """The plan of a task in its own words.

    ``mf(20);|tc(21);@110//tu(30);``: two segments, the second of 110 tokens, and the plan that may replace them.
    """
    skill_set = find_skill_set(request.skill_set)
    profile = find_plan_robot_profile(request.robot or skill_set.profile)
    segments = []
    plans = request.task.split(PLANS_APART)
    for part in plans[min(fault_round_plan_number(request.task_id), len(plans) - 1)].split(SEGMENTS_APART):
        text, _, tokens = part.partition("@")
        try:
            seconds = plan_segment_execution_s(text, skill_set, profile)
        except TimelyError:
            seconds = 1.0  # what no robot may do has no time; the server will not let it out
        segments.append(ScriptedSegment(text, seconds, int(tokens or TOKENS)))
    return segments


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; the file ``ready`` gets the server's URL."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ready", type=Path, required=True)
    parser.add_argument("--state-dir", type=Path, help="keeps the tasks over a restart")
    options = parser.parse_args(arguments)
    stop = core_stop_event()
    engine = ScriptedEngine(planner=planned_bench_segments, token_s=TOKEN_S)
    with ServerThread(
        create_app(engine, ServerSettings(state_dir=options.state_dir)), port=options.port
    ) as server:
        core_write_file(options.ready, server.url)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
