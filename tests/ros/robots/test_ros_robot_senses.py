"""What the drivers of real robots believe: the made-up room of a drone, the table of an arm."""

from __future__ import annotations

import math

import pytest
from timely_robots.detector import DronePose, NoDetector, RoomDetector, make_robot_detector
from timely_robots.drone_skills import DroneRobot
from timely_robots.error_codes import ErrorCode
from timely_robots.indy7.table import Indy7Table
from timely_robots.language import approve_robot_call
from timely_robots.segments import Motion, MotionError, SegmentOrder, SilentListener, SkillCall
from timely_robots.tello.robot import TelloRobot
from timely_robots.things import check_can_put, check_can_take

from lrtrace.profiles import load_robot_profile
from lrtrace.robot_profile import RobotProfile
from timely.core.clock import SystemClock
from timely.plans.skill_library import find_skill_set


def names(room: RoomDetector, where: DronePose) -> list[str]:
    return [seen.name for seen in room.look(where)]


def test_a_room_shows_what_is_ahead() -> None:
    room = RoomDetector(["Chair:0:200", "bottle:90:150"])
    assert names(room, DronePose()) == ["chair"]
    (bottle,) = room.look(DronePose(yaw=-math.pi / 2))
    assert bottle.name == "bottle"
    assert bottle.distance_m == pytest.approx(1.5)
    assert bottle.bearing == pytest.approx(0.0)
    assert names(room, DronePose(yaw=math.pi)) == []


def test_direction_and_distance_follow_the_drone() -> None:
    (chair,) = RoomDetector(["chair:0:200"]).look(DronePose(x=1.0, y=0.5))
    assert chair.distance_m == pytest.approx(math.hypot(1.0, 0.5))
    assert chair.bearing == pytest.approx(-math.atan2(0.5, 1.0)), "to the right is negative"


def test_what_is_high_is_seen_from_above_and_what_is_low_from_below() -> None:
    room = RoomDetector(["vase:0:200:high", "shoe:0:200:low"])
    assert [names(room, DronePose(z=z)) for z in (0.0, 0.4, -0.4)] == [[], ["vase"], ["shoe"]]


def test_eyes_are_made_as_the_parameters_say() -> None:
    assert isinstance(make_robot_detector("", ["cat:0:100"]), RoomDetector)
    assert isinstance(make_robot_detector("timely_robots.detector:NoDetector", []), NoDetector)
    with pytest.raises(MotionError, match="sees nothing"):
        make_robot_detector("", []).look(DronePose())


@pytest.mark.parametrize(
    ("detector", "things"),
    [
        ("no_such_module:Detector", []),
        ("math:Detector", []),
        ("", ["cat"]),
        ("", ["cat:left:100"]),
        ("", ["cat:0:-5"]),
        ("", ["cat:0:inf"]),
        ("", [":0:100"]),
        ("", ["cat:0:100:sideways"]),
    ],
)
def test_eyes_that_cannot_be_are_refused(detector: str, things: list[str]) -> None:
    with pytest.raises(MotionError) as caught:
        make_robot_detector(detector, things)
    assert caught.value.code == ErrorCode.INVALID_INPUT


def test_what_is_taken_moves_along() -> None:
    table = Indy7Table(["Cup:0.4,0.1,0.05", "plate:0.3,-0.2,0.0"])
    assert table.describe() == "cup, plate"
    check_can_take("cup[0.4]", table.holding)
    table.take("cup[0.4]")
    assert table.describe() == "plate"
    with pytest.raises(MotionError, match="holds 'cup'"):
        check_can_take("plate", table.holding)
    with pytest.raises(MotionError, match="on itself"):
        check_can_put("cup", table.holding)
    check_can_put("plate", table.holding)
    table.put((0.3, -0.2, 0.04))
    assert table.place("cup") == (0.3, -0.2, 0.04)
    with pytest.raises(MotionError, match="holds nothing"):
        check_can_put("plate", table.holding)


def test_what_nobody_told_of_lists_what_is_known() -> None:
    with pytest.raises(MotionError, match="known: cup"):
        Indy7Table(["cup:0,0,0"]).place("ghost")


@pytest.mark.parametrize("text", ["cup", "cup:1,2", "cup:a,b,c", ":0,0,0", "cup:0,0,inf"])
def test_a_thing_written_wrongly_is_refused(text: str) -> None:
    with pytest.raises(MotionError) as caught:
        Indy7Table([text])
    assert caught.value.code == ErrorCode.INVALID_INPUT


class Distances(DroneRobot):
    """A drone that writes down how far it flew, centimetres."""

    def __init__(self) -> None:
        super().__init__()
        self.flown: list[float] = []

    def fly(self, skill: str, centimetres: float, motion: Motion) -> None:
        self.flown.append(centimetres)


@pytest.mark.parametrize(("unit", "per_unit_s"), [("cm", 0.0072), ("m", 0.72), ("mm", 0.00072)])
def test_a_tello_expects_the_same_time_in_whatever_unit_its_profile_is(unit: str, per_unit_s: float) -> None:
    data = load_robot_profile("tello").model_dump()
    data["skills"]["move_forward"]["args"]["distance"] = {"unit": unit}
    data["skills"]["move_forward"]["execution"] |= {"unit": unit, "per_unit_s": per_unit_s}
    drone = TelloRobot()
    drone.profile = RobotProfile.model_validate(data)
    assert drone._expect_s("move_forward", 150, "cm", 0.0) == pytest.approx(1.8144 + 0.0072 * 150)


@pytest.mark.parametrize(("unit", "code"), [("cm", 0), ("m", 0), ("deg", ErrorCode.OUT_OF_LIMITS)])
def test_a_drone_flies_as_far_in_whatever_unit_its_profile_is(unit: str, code: int) -> None:
    data = load_robot_profile("tello").model_dump()
    data["skills"]["move_forward"]["args"]["distance"] = {"unit": unit}
    data["skills"]["move_forward"]["execution"] |= {"unit": unit}
    drone, clock = Distances(), SystemClock()
    drone.profile = RobotProfile.model_validate(data)
    motion = Motion(SegmentOrder("t", 0, "mf(150);", "drone"), SilentListener(), clock, 1.0)
    problem = 0
    try:
        call = approve_robot_call(
            SkillCall("move_forward", (150,), "mf(150)"), find_skill_set("drone"), drone.profile
        )
        drone.perform(call, motion)
    except MotionError as error:
        problem = error.code
    assert (drone.flown, problem) == ([] if code else [150.0], code)
