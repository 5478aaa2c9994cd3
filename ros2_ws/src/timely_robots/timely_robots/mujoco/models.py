"""The physics models as MJCF text: a six-axis arm with a gripper and cubes on a table, and a small quadrotor.

Both are our own and simple on purpose. Shapes are capsules and boxes; masses and torques are those of a small cobot
and of a drone of 80 g. Metres, kilograms, seconds, radians.
"""

from collections.abc import Mapping
from importlib import resources
from string import Template
from xml.sax.saxutils import quoteattr

Spot = tuple[float, float, float]

STEP_S = 0.002
CUBE_M = 0.04
"""Edge of the cubes that the arm can take."""
FINGER_REACH_M = 0.045
"""How far each finger opens from the middle."""
HOME = (0.0, -0.3, 1.9, 0.0, 1.54, 0.0)
"""The arm's joints at rest: the hand over the table, pointing down."""
ARM_JOINTS = tuple(f"joint{number}" for number in range(1, 7))

ROTOR_MAX_N = 0.6
ROTOR_ARM_M = 0.06
DRAG_M = 0.016
"""A rotor's torque about its axis over its thrust."""
DRONE_KG = 0.08
GRAVITY = 9.81


def mujoco_arm_model(things: Mapping[str, Spot], places: Mapping[str, Spot]) -> str:
    """The arm with its base at the origin on a table, ``things`` as cubes that can be taken, ``places`` as mats."""
    cubes = "\n".join(_mujoco_cube(number, spot) for number, spot in enumerate(things.values()))
    mats = "\n".join(_mujoco_mat(number, spot) for number, spot in enumerate(places.values()))
    welds = "\n".join(
        f'    <weld name="grip{number}" body1="hand" body2="thing{number}" active="false" '
        'solref="0.005 1" torquescale="0.2"/>'
        for number in range(len(things))
    )
    names = ", ".join((*things, *places))
    return _fill_mujoco_model(
        "arm.mjcf", name=quoteattr(f"arm with {names}" if names else "arm"), finger_reach_m=FINGER_REACH_M,
        mats=mats, cubes=cubes, welds=welds,
    )  # fmt: skip


def _fill_mujoco_model(file: str, **values: object) -> str:
    text = resources.files(__package__ or "").joinpath(file).read_text(encoding="utf-8")
    return Template(text).substitute(values, step_s=STEP_S, gravity=GRAVITY)


def _mujoco_cube(number: int, spot: Spot) -> str:
    half = 0.5 * CUBE_M
    return (
        f'    <body name="thing{number}" pos="{spot[0]:.6f} {spot[1]:.6f} {spot[2]:.6f}">'
        f'<freejoint name="thing{number}"/><geom type="box" size="{half} {half} {half}" condim="4"/></body>'
    )


def _mujoco_mat(number: int, spot: Spot) -> str:
    return (
        f'    <body name="place{number}" pos="{spot[0]:.6f} {spot[1]:.6f} {spot[2]:.6f}">'
        '<geom type="cylinder" size="0.07 0.001" contype="0" conaffinity="0" rgba="0.3 0.5 0.7 1"/></body>'
    )


def mujoco_quadrotor_model() -> str:
    """A quadrotor on the ground at the origin: a free body with four rotors in X, thrust as the control, newtons."""
    rotors = [("front_left", 1, 1, 1), ("rear_left", -1, 1, -1), ("rear_right", -1, -1, 1)]
    rotors.append(("front_right", 1, -1, -1))
    sites = "\n".join(
        f'      <site name="{name}" pos="{ROTOR_ARM_M * x} {ROTOR_ARM_M * y} 0.01"/>'
        for name, x, y, _ in rotors
    )
    motors = "\n".join(
        f'    <general name="{name}" site="{name}" gear="0 0 1 0 0 {-DRAG_M * spin}" '
        f'ctrlrange="0 {ROTOR_MAX_N}" dyntype="filterexact" dynprm="0.02"/>'
        for name, _, _, spin in rotors
    )
    return _fill_mujoco_model("quadrotor.mjcf", drone_kg=DRONE_KG, sites=sites, motors=motors)
