"""Where an Indy7's flange is for given joint angles, and back; millimetres and degrees, as its controller speaks.

Link offsets as in the maker's public robot description (URDF) of the Indy7. With all joints at zero the arm stands
upright, the flange at (0, -186.5, 1327.5) mm. Orientations are fixed-axis rotations about x, then y, then z.
"""

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


def _emulator_rotation(u: float, v: float, w: float) -> Array:
    """The rotation by ``u`` about x, then ``v`` about y, then ``w`` about z, degrees; shape (3, 3)."""
    a, b, c = (math.radians(angle) for angle in (u, v, w))
    x = np.array([[1, 0, 0], [0, math.cos(a), -math.sin(a)], [0, math.sin(a), math.cos(a)]])
    y = np.array([[math.cos(b), 0, math.sin(b)], [0, 1, 0], [-math.sin(b), 0, math.cos(b)]])
    z = np.array([[math.cos(c), -math.sin(c), 0], [math.sin(c), math.cos(c), 0], [0, 0, 1]])
    return np.asarray(z @ y @ x, dtype=np.float64)


def _emulator_angles(matrix: Array) -> tuple[float, float, float]:
    """The inverse of ``rotation``, degrees."""
    v = math.asin(max(-1.0, min(1.0, -float(matrix[2, 0]))))
    if abs(math.cos(v)) > 1e-9:
        u = math.atan2(float(matrix[2, 1]), float(matrix[2, 2]))
        w = math.atan2(float(matrix[1, 0]), float(matrix[0, 0]))
    else:
        u, w = math.atan2(-float(matrix[1, 2]), float(matrix[1, 1])), 0.0
    return math.degrees(u), math.degrees(v), math.degrees(w)


_Vector = tuple[float, float, float]
_JOINT_FRAMES: list[tuple[_Vector, tuple[_Vector, ...]]] = [
    (place, tuple((float(a), float(b), float(c)) for a, b, c in _emulator_rotation(*turn).T))
    for place, turn in _LINKS
]
"""Per joint its offset, and the columns of its fixed rotation."""


def _emulator_joint_chain(
    joints_deg: Sequence[float],
) -> tuple[list[tuple[_Vector, _Vector]], _Vector, tuple[_Vector, ...]]:
    """Per joint its (origin, axis); then the flange's position and the columns of its orientation.

    In plain numbers: numpy takes five times as long for such small matrices, and a stop waits for it.
    """
    px = py = pz = 0.0
    turn: tuple[_Vector, ...] = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    axes = []
    for (offset, rotation), angle in zip(_JOINT_FRAMES, joints_deg, strict=True):
        dx, dy, dz = _emulator_matrix_product(turn, offset)
        px, py, pz = px + dx, py + dy, pz + dz
        (ux, uy, uz), (vx, vy, vz), axis = (_emulator_matrix_product(turn, column) for column in rotation)
        cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        turn = (
            (cos * ux + sin * vx, cos * uy + sin * vy, cos * uz + sin * vz),
            (cos * vx - sin * ux, cos * vy - sin * uy, cos * vz - sin * uz),
            axis,
        )
        axes.append(((px, py, pz), axis))
    dx, dy, dz = _emulator_matrix_product(turn, (0.0, 0.0, _FLANGE_MM))
    return axes, (px + dx, py + dy, pz + dz), turn


def _emulator_matrix_product(columns: Sequence[_Vector], vector: _Vector) -> _Vector:
    """A matrix, given by its columns, times a vector."""
    (ax, ay, az), (bx, by, bz), (cx, cy, cz) = columns
    x, y, z = vector
    return (ax * x + bx * y + cx * z, ay * x + by * y + cy * z, az * x + bz * y + cz * z)


def _emulator_dot(a: _Vector, b: _Vector) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _emulator_cross(a: _Vector, b: _Vector) -> _Vector:
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def emulator_forward_kinematics(joints_deg: Sequence[float]) -> tuple[float, ...]:
    """The flange's pose (x, y, z, u, v, w) in the base frame, millimetres and degrees."""
    _, place, turn = _emulator_joint_chain(joints_deg)
    return (*place, *_emulator_angles(np.array(turn).T))


def emulator_inverse_kinematics(pose: Sequence[float], start_deg: Sequence[float]) -> list[float] | None:
    """Joint angles that reach ``pose``, found from ``start_deg`` on (damped least squares); None if none are.

    Joint limits are not its business.
    """
    (gx, gy, gz), aim = pose[:3], _emulator_rotation(pose[3], pose[4], pose[5])
    goal_columns = [(float(a), float(b), float(c)) for a, b, c in aim.T]
    joints: Array = np.asarray(start_deg, dtype=np.float64)
    for _ in range(_ROUNDS):
        axes, place, turn = _emulator_joint_chain(joints.tolist())
        away = (gx - place[0], gy - place[1], gz - place[2])
        crosses = [_emulator_cross(a, b) for a, b in zip(turn, goal_columns, strict=True)]
        twist = [0.5 * (a + b + c) for a, b, c in zip(*crosses, strict=True)]
        # Half a turn away the sum above is zero as well: only a trace of 3 means that the orientations agree.
        trace = sum(_emulator_dot(a, b) for a, b in zip(turn, goal_columns, strict=True))
        if math.hypot(*away) < _CLOSE[0] and math.hypot(*twist) < _CLOSE[1] and trace > 3.0 - 1e-6:
            return [float(angle) for angle in joints]
        # Lengths in metres, so that they weigh about as much as radians.
        error = np.array([*(part / 1000.0 for part in away), *twist])
        rows = []
        for at, axis in axes:
            arm = (place[0] - at[0], place[1] - at[1], place[2] - at[2])
            rows.append([*(part / 1000.0 for part in _emulator_cross(axis, arm)), *axis])
        jacobian = np.array(rows).T
        normal_matrix = jacobian @ jacobian.T + _DAMPING**2 * np.eye(JOINTS)
        step = np.degrees(jacobian.T @ np.linalg.solve(normal_matrix, error))
        largest = float(np.abs(step).max())
        joints = joints + step * min(1.0, 20.0 / largest if largest > 0 else 1.0)
    return None
