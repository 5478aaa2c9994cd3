"""Where an Indy7's flange is for given joint angles, and back; millimetres and degrees, as its controller speaks.

Link offsets as in the maker's public robot description (URDF) of the Indy7. With all joints at zero the arm stands
upright, the flange at (0, -186.5, 1327.5) mm. Orientations are fixed-axis rotations about x, then y, then z.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

JOINTS = 6
_LINKS: tuple[tuple[tuple[float, float, float], tuple[float, float, float]], ...] = (
    ((0.0, 0.0, 77.5), (0.0, 0.0, 0.0)),
    ((0.0, -109.0, 222.0), (90.0, 90.0, 0.0)),
    ((-450.0, 0.0, -30.5), (0.0, 0.0, 0.0)),
    ((-267.0, 0.0, -75.0), (-90.0, 0.0, 90.0)),
    ((0.0, -114.0, 83.0), (90.0, 90.0, 0.0)),
    ((-168.0, 0.0, 69.0), (-90.0, 0.0, 90.0)),
)
"""Of each joint in the frame of the one before: (x, y, z) and rotation (roll, pitch, yaw); it turns about its z."""
_FLANGE_MM = 60.0
_DAMPING = 1e-2
_ROUNDS = 120
_CLOSE = (0.05, 1e-4)
"""Millimetres and radians that count as there."""


def _indy7_rotation(u: float, v: float, w: float) -> Array:
    """The rotation by ``u`` about x, then ``v`` about y, then ``w`` about z, degrees; shape (3, 3)."""
    a, b, c = (math.radians(angle) for angle in (u, v, w))
    x = np.array([[1, 0, 0], [0, math.cos(a), -math.sin(a)], [0, math.sin(a), math.cos(a)]])
    y = np.array([[math.cos(b), 0, math.sin(b)], [0, 1, 0], [-math.sin(b), 0, math.cos(b)]])
    z = np.array([[math.cos(c), -math.sin(c), 0], [math.sin(c), math.cos(c), 0], [0, 0, 1]])
    return np.asarray(z @ y @ x, dtype=np.float64)


def _indy7_angles(matrix: Array) -> tuple[float, float, float]:
    """The inverse of ``rotation``, degrees."""
    v = math.asin(max(-1.0, min(1.0, -float(matrix[2, 0]))))
    if abs(math.cos(v)) > 1e-9:
        u = math.atan2(float(matrix[2, 1]), float(matrix[2, 2]))
        w = math.atan2(float(matrix[1, 0]), float(matrix[0, 0]))
    else:
        u, w = math.atan2(-float(matrix[1, 2]), float(matrix[1, 1])), 0.0
    return math.degrees(u), math.degrees(v), math.degrees(w)


_FIXED = [(np.array(place), _indy7_rotation(*turn)) for place, turn in _LINKS]


def _chain(joints_deg: Sequence[float]) -> tuple[list[tuple[Array, Array]], Array, Array]:
    """Per joint its (origin, axis); then the flange's position and orientation."""
    place: Array = np.zeros(3)
    turn: Array = np.eye(3)
    axes: list[tuple[Array, Array]] = []
    for (offset, fixed), angle in zip(_FIXED, joints_deg, strict=True):
        place = place + turn @ offset
        turn = turn @ fixed @ _indy7_rotation(0.0, 0.0, angle)
        axes.append((place, turn[:, 2]))
    return axes, place + turn @ np.array([0.0, 0.0, _FLANGE_MM]), turn


def emulator_forward_kinematics(joints_deg: Sequence[float]) -> tuple[float, ...]:
    """The flange's pose (x, y, z, u, v, w) in the base frame, millimetres and degrees."""
    _, place, turn = _chain(joints_deg)
    return (*(float(part) for part in place), *_indy7_angles(turn))


def emulator_inverse_kinematics(pose: Sequence[float], start_deg: Sequence[float]) -> list[float] | None:
    """Joint angles that reach ``pose``, found from ``start_deg`` on (damped least squares); None if none are.

    Joint limits are not its business.
    """
    goal, aim = np.asarray(pose[:3], dtype=np.float64), _indy7_rotation(pose[3], pose[4], pose[5])
    joints: Array = np.asarray(start_deg, dtype=np.float64)
    for _ in range(_ROUNDS):
        axes, place, turn = _chain([float(angle) for angle in joints])
        away = goal - place
        twist = 0.5 * sum(np.cross(turn[:, column], aim[:, column]) for column in range(3))
        # Half a turn away the sum above is zero as well: only a trace of 3 means that the orientations agree.
        agree = float(np.trace(turn.T @ aim)) > 3.0 - 1e-6
        if float(np.linalg.norm(away)) < _CLOSE[0] and float(np.linalg.norm(twist)) < _CLOSE[1] and agree:
            return [float(angle) for angle in joints]
        # Lengths in metres, so that they weigh about as much as radians.
        error = np.concatenate([away / 1000.0, twist])
        jacobian = np.array([[*np.cross(axis, place - at) / 1000.0, *axis] for at, axis in axes]).T
        damped = jacobian @ jacobian.T + _DAMPING**2 * np.eye(JOINTS)
        step = np.degrees(jacobian.T @ np.linalg.solve(damped, error))
        largest = float(np.abs(step).max())
        joints = joints + step * min(1.0, 20.0 / largest if largest > 0 else 1.0)
    return None
