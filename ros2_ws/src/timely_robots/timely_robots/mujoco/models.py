"""The physics models as MJCF text: a six-axis arm with a gripper and cubes on a table, and a small quadrotor.

Both are our own and simple on purpose. Shapes are capsules and boxes; masses and torques are those of a small cobot
and of a drone of 80 g. Metres, kilograms, seconds, radians.
"""

from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

Spot = tuple[float, float, float]

STEP_S = 0.002
CUBE_M = 0.04
"""Edge of the cubes that the arm can take."""
FINGER_REACH_M = 0.045
"""How far each finger opens from the middle."""
HOME = (0.0, -0.3, 1.9, 0.0, 1.54, 0.0)
"""The arm's joints at rest: the hand over the table, pointing down."""
REACH_M = 0.8
ARM_JOINTS = tuple(f"joint{number}" for number in range(1, 7))

ROTOR_MAX_N = 0.6
ROTOR_ARM_M = 0.06
DRAG_M = 0.016
"""A rotor's torque about its axis over its thrust."""
DRONE_KG = 0.08
GRAVITY = 9.81


def arm_model(things: Mapping[str, Spot], places: Mapping[str, Spot]) -> str:
    """The arm with its base at the origin on a table, ``things`` as cubes that can be taken, ``places`` as mats."""
    cubes = "\n".join(_cube(number, spot) for number, spot in enumerate(things.values()))
    mats = "\n".join(_mat(number, spot) for number, spot in enumerate(places.values()))
    welds = "\n".join(
        f'    <weld name="grip{number}" body1="hand" body2="thing{number}" active="false" '
        'solref="0.005 1" torquescale="0.2"/>'
        for number in range(len(things))
    )
    names = ", ".join((*things, *places))
    return f"""<mujoco model={quoteattr(f"arm with {names}" if names else "arm")}>
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{STEP_S}" gravity="0 0 -{GRAVITY}" integrator="implicitfast" cone="elliptic" impratio="5"/>
  <default>
    <geom density="800" friction="1.2 0.02 0.001"/>
    <joint damping="2.0" armature="0.08"/>
    <default class="link"><geom type="capsule" contype="0" conaffinity="0" rgba="0.85 0.87 0.9 1"/></default>
    <default class="big"><position kp="900" dampratio="1" forcerange="-120 120"/></default>
    <default class="small"><position kp="250" dampratio="1" forcerange="-30 30"/></default>
    <default class="finger">
      <joint type="slide" damping="4" armature="0.02" range="0 {FINGER_REACH_M}"/>
      <position kp="250" dampratio="1" forcerange="-15 15" ctrlrange="0 {FINGER_REACH_M}"/>
      <geom type="box" size="0.006 0.012 0.025" density="600" friction="1.5 0.05 0.001"/>
    </default>
  </default>
  <worldbody>
    <light pos="0 0 2.5"/>
    <geom name="table" type="box" size="1.0 1.0 0.02" pos="0 0 -0.02" rgba="0.6 0.5 0.4 1"/>
    <body name="base" pos="0 0 0" gravcomp="1">
      <geom class="link" fromto="0 0 0 0 0 0.1" size="0.06"/>
      <body name="link1" pos="0 0 0.15" gravcomp="1">
        <joint name="joint1" axis="0 0 1" range="-3.05 3.05"/>
        <geom class="link" fromto="0 0 0 0 0 0.15" size="0.05"/>
        <body name="link2" pos="0 0 0.15" gravcomp="1">
          <joint name="joint2" axis="0 1 0" range="-2.2 2.2"/>
          <geom class="link" fromto="0 0 0 0 0 0.4" size="0.045"/>
          <body name="link3" pos="0 0 0.4" gravcomp="1">
            <joint name="joint3" axis="0 1 0" range="-2.6 2.6"/>
            <geom class="link" fromto="0 0 0 0 0 0.2" size="0.04"/>
            <body name="link4" pos="0 0 0.2" gravcomp="1">
              <joint name="joint4" axis="0 0 1" range="-3.05 3.05" armature="0.02"/>
              <geom class="link" fromto="0 0 0 0 0 0.15" size="0.035"/>
              <body name="link5" pos="0 0 0.15" gravcomp="1">
                <joint name="joint5" axis="0 1 0" range="-3.05 3.05" armature="0.02"/>
                <geom class="link" fromto="0 0 0 0 0 0.06" size="0.03"/>
                <body name="hand" pos="0 0 0.08" gravcomp="1">
                  <joint name="joint6" axis="0 0 1" range="-3.05 3.05" armature="0.02"/>
                  <geom class="link" fromto="0 -0.04 0.01 0 0.04 0.01" size="0.015"/>
                  <site name="tool" pos="0 0 0.075"/>
                  <body name="left" pos="0 0.006 0.06" gravcomp="1">
                    <joint class="finger" name="left" axis="0 1 0"/>
                    <geom class="finger"/>
                  </body>
                  <body name="right" pos="0 -0.006 0.06" gravcomp="1">
                    <joint class="finger" name="right" axis="0 -1 0"/>
                    <geom class="finger"/>
                  </body>
                </body>
              </body>
            </body>
          </body>
        </body>
      </body>
    </body>
{mats}
{cubes}
  </worldbody>
  <contact>
    <exclude body1="left" body2="right"/>
  </contact>
  <equality>
{welds}
  </equality>
  <actuator>
    <position class="big" name="joint1" joint="joint1" ctrlrange="-3.05 3.05"/>
    <position class="big" name="joint2" joint="joint2" ctrlrange="-2.2 2.2"/>
    <position class="big" name="joint3" joint="joint3" ctrlrange="-2.6 2.6"/>
    <position class="small" name="joint4" joint="joint4" ctrlrange="-3.05 3.05"/>
    <position class="small" name="joint5" joint="joint5" ctrlrange="-3.05 3.05"/>
    <position class="small" name="joint6" joint="joint6" ctrlrange="-3.05 3.05"/>
    <position class="finger" name="left" joint="left"/>
    <position class="finger" name="right" joint="right"/>
  </actuator>
</mujoco>
"""


def _cube(number: int, spot: Spot) -> str:
    half = 0.5 * CUBE_M
    return (
        f'    <body name="thing{number}" pos="{spot[0]:.6f} {spot[1]:.6f} {spot[2]:.6f}">'
        f'<freejoint name="thing{number}"/><geom type="box" size="{half} {half} {half}" condim="4"/></body>'
    )


def _mat(number: int, spot: Spot) -> str:
    return (
        f'    <body name="place{number}" pos="{spot[0]:.6f} {spot[1]:.6f} {spot[2]:.6f}">'
        '<geom type="cylinder" size="0.07 0.001" contype="0" conaffinity="0" rgba="0.3 0.5 0.7 1"/></body>'
    )


def quadrotor_model() -> str:
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
    return f"""<mujoco model="quadrotor">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{STEP_S}" gravity="0 0 -{GRAVITY}" density="1.2" viscosity="0.00002"/>
  <worldbody>
    <light pos="0 0 3"/>
    <geom name="ground" type="plane" size="60 60 0.1" friction="1 0.005 0.0001"/>
    <body name="drone" pos="0 0 0.03">
      <freejoint name="drone"/>
      <inertial pos="0 0 0" mass="{DRONE_KG}" diaginertia="0.00011 0.00011 0.0002"/>
      <geom type="box" size="0.05 0.04 0.015" rgba="0.2 0.2 0.25 1"/>
      <geom type="box" size="0.08 0.08 0.003" pos="0 0 0.01" contype="0" conaffinity="0" mass="0"/>
{sites}
    </body>
  </worldbody>
  <actuator>
{motors}
  </actuator>
</mujoco>
"""
