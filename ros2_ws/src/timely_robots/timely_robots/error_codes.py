"""Error codes of segments and tasks, equal to those of timely_interfaces/msg/ErrorCode, without ROS.

Written by scripts/generate_ros_stubs.py from ErrorCode.msg, which says what each means; do not edit.
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    """Why a task or a segment did not succeed."""

    NONE = 0
    INVALID_INPUT = 1000
    UNKNOWN_NAME = 1001
    TOO_LARGE = 1002
    NOT_ALLOWED = 1003
    CONFLICT = 1004
    UNSUPPORTED = 1005
    ROBOT_BUSY = 1006
    OVERLOADED = 1100
    ENGINE_FAILED = 1101
    UNSAFE_SEGMENT = 1102
    SERVER_UNREACHABLE = 1103
    SERVER_TIMEOUT = 1104
    PLAN_TRUNCATED = 1105
    EXPIRED = 1106
    SERVER_ERROR = 1199
    BRIDGE_INACTIVE = 1200
    CANCELLED = 1201
    PREEMPTED = 1202
    DRIVER_UNAVAILABLE = 1203
    DRIVER_LOST = 1204
    SEGMENT_TIMEOUT = 1205
    FLEET_STOPPED = 1206
    LEASE_DENIED = 1207
    BRIDGE_INTERNAL = 1299
    DRIVER_INACTIVE = 2000
    DRIVER_STOPPED = 2001
    SEGMENT_INVALID = 2002
    OUT_OF_LIMITS = 2003
    SKILL_FORBIDDEN = 2004
    OUT_OF_ORDER = 2005
    DUPLICATE = 2006
    QUEUE_FULL = 2007
    MOTION_FAILED = 2008
    MOTION_TIMEOUT = 2009
    CONNECTION_LOST = 2010
    SEGMENT_CANCELLED = 2011
    NOT_OWNER = 2012
    FAILSAFE = 2013
    NOT_CONFIRMED = 2014
    OBSTACLE = 2015
    STORAGE_FAILED = 2016
    DRIVER_INTERNAL = 2099
