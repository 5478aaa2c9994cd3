"""What a principal may do with tasks and robots, and how far its claims reach."""

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import replace

from timely.core.errors import NotAllowed
from timely.disciplines.predictors.urgency import Assignment
from timely.principals import Principal, PrincipalClaims, principal_token_digest
from timely.server.tasks.request import TaskRequest
from timely.server.tasks.task import Task, unknown_task


def task_urgency_within_claims(urgency: Assignment, claims: PrincipalClaims) -> Assignment:
    """The level reduced to the limits unless an operator gave it: a predicted one is of the client's own text."""
    if urgency.source == "operator" or urgency.level is None:
        return urgency
    return replace(urgency, level=claims.urgency(urgency.level))


def task_within_claims(request: TaskRequest, principal: Principal) -> TaskRequest:
    """The request with its claims and its deadline reduced to the principal's limits."""
    claims, plan_s = principal.claims, principal.limits.plan_s
    deadlines_s = [limit_s for limit_s in (request.deadline_s, plan_s) if limit_s is not None]
    updates = {
        "deadline_s": min(deadlines_s, default=None),
        "tuf": claims.utility(request.tuf),
        "urgency": claims.urgency(request.urgency),
        "priority": claims.priority(request.priority),
        "app": principal.app(request.app),
    }
    return request.model_copy(update=updates)


def check_task_submitter(principal: Principal, agent: str) -> None:
    """Raise NotAllowed unless a principal may request plans, and has the robot on its list."""
    principal.require("robot", "program", "operator", action="request plans")
    # A request without a robot's name commands no robot.
    if agent or principal.roles == {"robot"}:
        check_task_robots(principal, [agent])


def check_task_bridge(principal: Principal, agents: Sequence[str]) -> None:
    """Raise NotAllowed unless a principal may answer for robots, and has these on its list."""
    principal.require("robot", "operator", action="answer for robots")
    check_task_robots(principal, agents)


def check_task_robots(principal: Principal, agents: Iterable[str]) -> None:
    """Raise NotAllowed unless a principal has these robots on its list."""
    for agent in agents:
        if not principal.commands(agent):
            raise NotAllowed(f"{agent!r} is not on the list of {principal.name}", where="agent")


def check_task_visible(task: Task, principal: Principal) -> None:
    """Raise UnknownName, which does not say that a task exists, unless a principal may see it."""
    if not principal.sees(task.owner, task.request.agent):
        raise unknown_task(task.task_id)


def check_fleet_operator(principal: Principal, agents: Iterable[str], *, incomplete: bool) -> None:
    """Raise NotAllowed unless a principal has these robots on its list; all robots, where others may be missing."""
    if incomplete and not principal.commands_all:
        raise NotAllowed(
            f"robots are missing in the stop, and {principal.name} commands only some robots", where="agent"
        )
    check_task_robots(principal, agents)


def holds_task_token(task: Task, token: str | None) -> bool:
    return token is not None and hmac.compare_digest(principal_token_digest(token), task.token_digest)


def check_task_operator(task: Task, principal: Principal) -> None:
    """Raise NotAllowed unless the task's robot, if it has one, is on the list of the principal, an operator."""
    check_task_robots(principal, filter(None, [task.request.agent]))


def check_task_owner(
    task: Task, principal: Principal, token: str | None, agents: Sequence[str | None] = ()
) -> None:
    """Check that a principal may act on a task: with the task's token, or as an operator of its robot.

    Raises:
        NotAllowed: it may not. UnknownName: it may not even see the task.
    """
    if principal.overrides_tokens:
        if not holds_task_token(task, token):
            check_task_operator(task, principal)
        return
    principal.require("robot", "program", "operator", action="act on tasks")
    check_task_visible(task, principal)
    if token is None:
        raise NotAllowed("send the report_token of the task's first event", where="Timely-Task-Token")
    if not holds_task_token(task, token):
        raise NotAllowed("the token is not that of this task", where="Timely-Task-Token")
    if any(agent is not None and agent != task.request.agent for agent in agents):
        raise NotAllowed("the task is another robot's", where="agent")
