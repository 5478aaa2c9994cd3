# Written by scripts/generate_ros_stubs.py from the interface files; do not edit.
from typing import Final
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Pose
class ErrorCode:
    NONE: Final = 0
    INVALID_INPUT: Final = 1000
    UNKNOWN_NAME: Final = 1001
    TOO_LARGE: Final = 1002
    NOT_ALLOWED: Final = 1003
    CONFLICT: Final = 1004
    UNSUPPORTED: Final = 1005
    ROBOT_BUSY: Final = 1006
    OVERLOADED: Final = 1100
    ENGINE_FAILED: Final = 1101
    UNSAFE_SEGMENT: Final = 1102
    SERVER_UNREACHABLE: Final = 1103
    SERVER_TIMEOUT: Final = 1104
    PLAN_TRUNCATED: Final = 1105
    EXPIRED: Final = 1106
    SERVER_ERROR: Final = 1199
    BRIDGE_INACTIVE: Final = 1200
    CANCELLED: Final = 1201
    PREEMPTED: Final = 1202
    DRIVER_UNAVAILABLE: Final = 1203
    DRIVER_LOST: Final = 1204
    SEGMENT_TIMEOUT: Final = 1205
    FLEET_STOPPED: Final = 1206
    LEASE_DENIED: Final = 1207
    BRIDGE_INTERNAL: Final = 1299
    DRIVER_INACTIVE: Final = 2000
    DRIVER_STOPPED: Final = 2001
    SEGMENT_INVALID: Final = 2002
    OUT_OF_LIMITS: Final = 2003
    SKILL_FORBIDDEN: Final = 2004
    OUT_OF_ORDER: Final = 2005
    DUPLICATE: Final = 2006
    QUEUE_FULL: Final = 2007
    MOTION_FAILED: Final = 2008
    MOTION_TIMEOUT: Final = 2009
    CONNECTION_LOST: Final = 2010
    SEGMENT_CANCELLED: Final = 2011
    NOT_OWNER: Final = 2012
    FAILSAFE: Final = 2013
    NOT_CONFIRMED: Final = 2014
    OBSTACLE: Final = 2015
    STORAGE_FAILED: Final = 2016
    SKILL_SET_MISMATCH: Final = 2017
    DRIVER_INTERNAL: Final = 2099
    value: int
    def __init__(self, *, value: int = ...) -> None: ...
    @classmethod
    def get_fields_and_field_types(cls) -> dict[str, str]: ...
class Lease:
    stamp: Time
    owner: str
    epoch: int
    released: bool
    def __init__(self, *, stamp: Time = ..., owner: str = ..., epoch: int = ..., released: bool = ...) -> None: ...
    @classmethod
    def get_fields_and_field_types(cls) -> dict[str, str]: ...
class RobotState:
    UNCONFIGURED: Final = 0
    READY: Final = 1
    EXECUTING: Final = 2
    HOLDING: Final = 3
    STOPPED: Final = 4
    FAULT: Final = 5
    stamp: Time
    robot: str
    driver: str
    session: int
    mode: int
    task_id: str
    segment: int
    progress: float
    queued: int
    pose: Pose
    battery: float
    detail: str
    holding: str
    stop_id: str
    halted: bool
    at_rest: bool
    lease_owner: str
    lease_epoch: int
    failsafe: str
    awaiting: str
    def __init__(self, *, stamp: Time = ..., robot: str = ..., driver: str = ..., session: int = ..., mode: int = ..., task_id: str = ..., segment: int = ..., progress: float = ..., queued: int = ..., pose: Pose = ..., battery: float = ..., detail: str = ..., holding: str = ..., stop_id: str = ..., halted: bool = ..., at_rest: bool = ..., lease_owner: str = ..., lease_epoch: int = ..., failsafe: str = ..., awaiting: str = ...) -> None: ...
    @classmethod
    def get_fields_and_field_types(cls) -> dict[str, str]: ...
class Segment:
    stamp: Time
    task_id: str
    index: int
    text: str
    tokens: int
    execution_s: float
    blocking: bool
    def __init__(self, *, stamp: Time = ..., task_id: str = ..., index: int = ..., text: str = ..., tokens: int = ..., execution_s: float = ..., blocking: bool = ...) -> None: ...
    @classmethod
    def get_fields_and_field_types(cls) -> dict[str, str]: ...
class SegmentReport:
    STARTED: Final = 0
    PROGRESS: Final = 1
    DONE: Final = 2
    FAILED: Final = 3
    VALUE: Final = 4
    stamp: Time
    task_id: str
    segment: int
    kind: int
    elapsed_s: float
    remaining_s: float
    value: str
    error_code: int
    reason: str
    def __init__(self, *, stamp: Time = ..., task_id: str = ..., segment: int = ..., kind: int = ..., elapsed_s: float = ..., remaining_s: float = ..., value: str = ..., error_code: int = ..., reason: str = ...) -> None: ...
    @classmethod
    def get_fields_and_field_types(cls) -> dict[str, str]: ...
class Task:
    PLANNING: Final = 0
    PLANNED: Final = 1
    ENDED: Final = 2
    stamp: Time
    task_id: str
    robot: str
    phase: int
    segments: int
    task: str
    scene: str
    skill_set: str
    tuf: TimeUtility
    agent: str
    app: str
    replaces: str
    outcome: str
    error_code: int
    error_msg: str
    response: float
    waiting: float
    utility: float
    def __init__(self, *, stamp: Time = ..., task_id: str = ..., robot: str = ..., phase: int = ..., segments: int = ..., task: str = ..., scene: str = ..., skill_set: str = ..., tuf: TimeUtility = ..., agent: str = ..., app: str = ..., replaces: str = ..., outcome: str = ..., error_code: int = ..., error_msg: str = ..., response: float = ..., waiting: float = ..., utility: float = ...) -> None: ...
    @classmethod
    def get_fields_and_field_types(cls) -> dict[str, str]: ...
class TimeUtility:
    ert_s: float
    alpha: float
    beta: float
    cutoff_s: float
    def __init__(self, *, ert_s: float = ..., alpha: float = ..., beta: float = ..., cutoff_s: float = ...) -> None: ...
    @classmethod
    def get_fields_and_field_types(cls) -> dict[str, str]: ...
