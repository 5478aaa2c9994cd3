"""When a failsafe acts: each cause after it has lasted, a low or unknown battery at once."""

from __future__ import annotations

import math
from typing import Any

import pytest
from timely_robots.failsafe import Conditions, FailsafeMonitor
from timely_robots.robot import RobotStatus

from lrtrace.robot_profile import Failsafe

LOST = [{"plan_wait_s": 0.1}, {"bridge_lost": True}, {"lease_lapsed": True}, {"link_lost": True}]


@pytest.mark.parametrize("cause", LOST)
def test_each_loss_holds_first_and_acts_once_when_it_lasts(cause: dict[str, Any]) -> None:
    monitor = FailsafeMonitor(Failsafe(hold_s=10.0, then="land"))
    lost = Conditions(away=True, **cause)
    assert [monitor.update(lost, now_s) for now_s in (0.0, 9.9)] == ["", ""]
    assert monitor.active == "hold"
    assert [monitor.update(lost, now_s) for now_s in (10.0, 20.0)] == ["land", ""]
    assert monitor.active == "land"
    assert monitor.update(Conditions(away=True), 21.0) == ""
    assert monitor.active == ""
    assert monitor.update(lost, 22.0) == "", "the time counts anew"
    assert monitor.update(Conditions(**cause), 40.0) == "", "at its base a robot may wait"


@pytest.mark.parametrize("battery", [0.1, math.nan])
def test_a_low_or_unknown_battery_acts_at_once(battery: float) -> None:
    monitor = FailsafeMonitor(Failsafe(hold_s=10.0, then="land", battery_reserve=0.15))
    assert monitor.update(Conditions(away=True, battery=battery), 0.0) == "land"
    assert monitor.battery_problem(battery)


def test_hold_never_ends_in_another_action() -> None:
    monitor = FailsafeMonitor(Failsafe(hold_s=0.0))
    assert monitor.update(Conditions(away=True, link_lost=True), 100.0) == ""
    assert monitor.active == "hold"


def test_a_robot_that_does_not_observe_its_motion_is_not_at_rest() -> None:
    assert not RobotStatus().at_rest
