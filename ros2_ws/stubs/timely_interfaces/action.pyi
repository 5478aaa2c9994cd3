# Written by scripts/generate_ros_stubs.py from the interface files; do not edit.
from typing import Any, Final
from builtin_interfaces.msg import Time
from timely_interfaces.msg import Segment, TimeUtility
class ExecuteSegment:
    class Goal:
        task_id: str
        index: int
        text: str
        skill_set: str
        execution_s: float
        blocking: bool
        owner: str
        epoch: int
        skill_set_fingerprint: str
        def __init__(self, *, task_id: str = ..., index: int = ..., text: str = ..., skill_set: str = ..., execution_s: float = ..., blocking: bool = ..., owner: str = ..., epoch: int = ..., skill_set_fingerprint: str = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    class Result:
        DONE: Final = 'done'
        FAILED: Final = 'failed'
        CANCELLED: Final = 'cancelled'
        REFUSED: Final = 'refused'
        outcome: str
        error_code: int
        error_msg: str
        executed: str
        start: Time
        end: Time
        elapsed_s: float
        has_value: bool
        value: str
        def __init__(self, *, outcome: str = ..., error_code: int = ..., error_msg: str = ..., executed: str = ..., start: Time = ..., end: Time = ..., elapsed_s: float = ..., has_value: bool = ..., value: str = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    class Feedback:
        progress: float
        elapsed_s: float
        remaining_s: float
        def __init__(self, *, progress: float = ..., elapsed_s: float = ..., remaining_s: float = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    Impl: Any
class ExecuteTask:
    class Goal:
        task: str
        scene: str
        skill_set: str
        tuf: TimeUtility
        agent: str
        app: str
        urgency: int
        def __init__(self, *, task: str = ..., scene: str = ..., skill_set: str = ..., tuf: TimeUtility = ..., agent: str = ..., app: str = ..., urgency: int = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    class Result:
        COMPLETE: Final = 'complete'
        CANCELLED: Final = 'cancelled'
        FAILED: Final = 'failed'
        REFUSED: Final = 'refused'
        plan: str
        outcome: str
        error_code: int
        error_msg: str
        response: float
        waiting: float
        utility: float
        def __init__(self, *, plan: str = ..., outcome: str = ..., error_code: int = ..., error_msg: str = ..., response: float = ..., waiting: float = ..., utility: float = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    class Feedback:
        segment: Segment
        def __init__(self, *, segment: Segment = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    Impl: Any
