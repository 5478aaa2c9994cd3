# Written by scripts/generate_ros_stubs.py from the interface files; do not edit.
from collections.abc import MutableSequence
from typing import Final
class AcquireLease:
    class Request:
        owner: str
        take_over: bool
        token: str
        ends_epoch: int
        def __init__(self, *, owner: str = ..., take_over: bool = ..., token: str = ..., ends_epoch: int = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    class Response:
        granted: bool
        epoch: int
        owner: str
        lapse_s: float
        error_code: int
        message: str
        def __init__(self, *, granted: bool = ..., epoch: int = ..., owner: str = ..., lapse_s: float = ..., error_code: int = ..., message: str = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
class ConfirmSkill:
    class Request:
        task_id: str
        segment: int
        call: str
        allow: bool
        token: str
        def __init__(self, *, task_id: str = ..., segment: int = ..., call: str = ..., allow: bool = ..., token: str = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    class Response:
        success: bool
        message: str
        def __init__(self, *, success: bool = ..., message: str = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
class ResetStop:
    class Request:
        token: str
        stop_id: str
        def __init__(self, *, token: str = ..., stop_id: str = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    class Response:
        success: bool
        message: str
        def __init__(self, *, success: bool = ..., message: str = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
class StopFleet:
    class Request:
        deadline_s: float
        def __init__(self, *, deadline_s: float = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
    class Response:
        HALTED: Final = 'halted'
        AT_REST: Final = 'at_rest'
        UNKNOWN: Final = 'unknown'
        success: bool
        robots: MutableSequence[str]
        states: MutableSequence[str]
        message: str
        stop_id: str
        def __init__(self, *, success: bool = ..., robots: MutableSequence[str] = ..., states: MutableSequence[str] = ..., message: str = ..., stop_id: str = ...) -> None: ...
        @classmethod
        def get_fields_and_field_types(cls) -> dict[str, str]: ...
