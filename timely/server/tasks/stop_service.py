"""What principals may do with the stop of all robots."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from timely.core.clock import clock_timeout
from timely.core.errors import NotAllowed
from timely.principals import Principal
from timely.server.settings import ServerSettings
from timely.server.tasks.fleet_stop import ServerStopLatch
from timely.server.tasks.lifecycle import TaskLifecycle
from timely.server.tasks.permissions import check_fleet_operator, check_task_bridge
from timely.server.tasks.recorder import TaskRecorder
from timely.server.tasks.request import AcknowledgementBody, ProblemsBody
from timely.server.tasks.task import TaskEnding
from timely.server.tasks.task_table import TaskTable

MAX_TARGET_CHARS = 1000
ENDING_S = 2.0
"""A stop waits so long, beyond its deadline, for disk and engine. An engine that hangs must not hold up its answer."""


@dataclass(frozen=True, slots=True)
class ServerStopService:
    """Stops the fleet, records acknowledgements, resets the stop.

    Every method raises NotAllowed for a principal without a role for it, or without a robot on its list.
    """

    latch: ServerStopLatch
    tasks: TaskTable
    lifecycle: TaskLifecycle
    recorder: TaskRecorder
    settings: ServerSettings

    async def stop(self, principal: Principal, reason: str, deadline_s: float) -> dict[str, Any]:
        """Stop every robot: latch the stop, end all tasks, wait for the bridges' acknowledgements.

        Returns each robot's state; a robot without an acknowledgement in time is ``unknown``. ``stop_id`` is that of
        this request: its sender may not know of a stop that came meanwhile, and a reset must not release that one.
        """
        with self.recorder.audit_outcome(principal, "stop", "fleet"):
            principal.require("operator", "robot", action="stop the fleet")
            tasks = self.tasks.open_tasks()
            agents = [task.request.agent for task in tasks]
            stop_id = self.latch.latch(reason, principal.name, agents)
        # Robots come first, the disk second.
        saving = asyncio.create_task(self.latch.save())
        self.recorder.note("stop", stop_id=stop_id, principal=principal.name, reason=reason)
        ending = TaskEnding("cancelled", "", f"the fleet was stopped: {stop_id}", cause="fleet_stop")
        ends = asyncio.gather(saving, *(self.lifecycle.discard(task, ending) for task in tasks))
        await self.latch.wait_for_answers(min(deadline_s, self.settings.max_stop_deadline_s))
        async with clock_timeout(ENDING_S):
            await asyncio.shield(ends)
        return {**self.latch.view(), "stop_id": stop_id}

    def view(self, principal: Principal) -> dict[str, Any]:
        """The latched stop with every robot's state."""
        principal.require("operator", "viewer", "robot", action="see the stop")
        return self.latch.view()

    def admit_follower(self, principal: Principal, agents: Sequence[str]) -> None:
        """Check that a principal may follow the stop as the bridge of robots."""
        with self.recorder.audit_outcome(principal, "follow the stop", ", ".join(agents)[:MAX_TARGET_CHARS]):
            check_task_bridge(principal, agents)

    def acknowledge(self, principal: Principal, body: AcknowledgementBody, sequence: int = 0) -> None:
        """Record what a bridge says of a stopped robot.

        Args:
            sequence: higher for each acknowledgement of a stream; 0: not known.

        Raises:
            NotAllowed: the acknowledgement is not from a stream with the robot.
            Conflict: that stop is not latched, a later acknowledgement was here before, or an operator's may be of one
            robot or another.
        """
        with self.recorder.audit_outcome(principal, f"stop: {body.state}", body.agent):
            check_task_bridge(principal, [body.agent])
            is_operator = principal.named and principal.overrides_tokens
            origin = (body.stream_token, sequence)
            if is_operator and (body.bridge is not None or not body.stream_token):
                # The numbers of operators, who have no stream, are of clocks that do not agree.
                robot, origin = self.latch.find_robot(body.agent, body.bridge), ("", 0)
            else:
                robot = self.latch.follower_robot(body.stream_token, body.agent)
            self.latch.acknowledge(body.stop_id, robot, body.state, body.detail, origin)
        fields = body.model_dump(exclude={"stream_token"})
        self.recorder.note("stop_acknowledged", **(fields | {"bridge": robot.bridge}))

    def set_problems(self, principal: Principal, body: ProblemsBody) -> None:
        """Note what keeps the robots of a bridge from their tasks, in place of what it said before.

        Raises:
            NotAllowed: the request is not from a stream with the robots.
        """
        try:
            check_task_bridge(principal, list(body.problems))
            self.latch.set_problems(body.stream_token, body.problems)
        except NotAllowed as error:
            # Only refusals are audited, as of reports: the state of a robot changes nothing here.
            self.recorder.audit(principal.name, "robot problems", "", error.code, error.message)
            raise

    def problems(self, principal: Principal) -> dict[str, str]:
        """Name of a robot -> what keeps it from its tasks."""
        principal.require("operator", "viewer", "robot", action="see the robots")
        return self.latch.problems()

    async def reset(self, principal: Principal, stop_id: str | None = None) -> dict[str, Any]:
        """Release the latched stop, if it is the one named; bridges may then release theirs.

        ``saved`` is false where the disk keeps nothing or refuses; then a restart may latch the stop again.

        Raises:
            Conflict: another stop, or none, is latched.
        """
        with self.recorder.audit_outcome(principal, "reset", "fleet"):
            principal.require("operator", action="reset the stop")
            self.latch.check_reset(stop_id)
            check_fleet_operator(principal, self.latch.agents, incomplete=self.latch.incomplete)
            stop_id = self.latch.reset()
        self.recorder.note("stop_reset", stop_id=stop_id, principal=principal.name)
        return {"stop_id": stop_id, "reset": True, "saved": await self.latch.save()}

    async def remove_robots(self, principal: Principal, agents: Sequence[str]) -> dict[str, Any]:
        """Expect robots no longer that are out of service.

        Raises:
            Conflict: a bridge follows one of them.
        """
        with self.recorder.audit_outcome(principal, "remove robots", ", ".join(agents)[:MAX_TARGET_CHARS]):
            principal.require("operator", action="remove robots from the stop")
            check_fleet_operator(principal, agents, incomplete=self.latch.incomplete)
            removals, is_saved = await self.latch.remove(agents)
        self.recorder.note("stop_robots_removed", robots=removals, principal=principal.name)
        return {"removed": removals, "saved": is_saved}
