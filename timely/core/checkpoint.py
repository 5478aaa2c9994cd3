"""The state of a long benchmark in a file, so that an interrupted run goes on where it was; without one, nothing."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from timely.core.errors import InvalidInput
from timely.core.files import core_read_json, core_write_file


def save_core_checkpoint(file: Path | None, run: Mapping[str, Any], tally: Mapping[str, Any]) -> None:
    if file is not None:
        core_write_file(file, json.dumps({**run, "tally": tally}))


def load_core_checkpoint(file: Path | None, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """The tally of an interrupted run; None without the file.

    Raises:
        InvalidInput: the file is of another run, or cannot be read.
    """
    if file is None or not file.exists():
        return None
    try:
        data: dict[str, Any] = json.loads(file.read_text())
        tally: dict[str, Any] = data.pop("tally")
        if data != run:
            raise ValueError(f"of {data}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"is no checkpoint of this run: {error}", where=str(file)) from error
    return tally


def check_settings_file(file: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings of the results in a folder into a file; a later call compares its own with those.

    Raises:
        InvalidInput: the file is of other settings, or cannot be read.
    """
    text = json.dumps(settings, indent=1)
    if not file.exists():
        core_write_file(file, text + "\n")
    elif core_read_json(file) != json.loads(text):
        raise InvalidInput("holds results of other settings; give another folder", where=str(file.parent))


def remove_checkpoint(file: Path | None) -> None:
    if file is not None:
        file.unlink(missing_ok=True)
