"""The result of a replay as a JSON file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timely.core.errors import InvalidInput
from timely.core.files import core_read_json


def replay_result_text(result: Mapping[str, Any]) -> str:
    """A result as JSON, with a line for each field, job and column, so that two results can be compared by `diff`."""
    lines = [
        f"{_result_file_json(name)}: {_result_file_field(name, value)}" for name, value in result.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _result_file_field(name: str, value: Any) -> str:
    if name == "jobs" and value:
        return "[\n" + ",\n".join(f"  {_result_file_json(job)}" for job in value) + "\n]"
    if name in ("summary", "series", "journal", "counters") and isinstance(value, dict):
        return (
            "{\n"
            + ",\n".join(
                f"  {_result_file_json(key)}: {_result_file_json(part)}" for key, part in value.items()
            )
            + "\n}"
        )
    return _result_file_json(value)


def _result_file_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def read_replay_result(path: Path) -> dict[str, Any]:
    """A result file.

    Raises:
        InvalidInput: unreadable, or not the result of a replay; names the file.
    """
    data = core_read_json(path)
    if not isinstance(data.get("jobs"), list) or "discipline" not in data:
        raise InvalidInput("not the result of `timely replay --json`", where=str(path))
    return data
