"""What the server's own log says of tasks: which segments it released and when, and which were reported as done."""

from dataclasses import dataclass, field
from pathlib import Path

from timely.core.record_log import parse_record_lines


@dataclass(slots=True)
class FaultServerTask:
    """A task: segment -> when it was released, seconds on the machine's clock; and the segments reported as done."""

    released_s: dict[int, float] = field(default_factory=dict)
    reported_segments: set[int] = field(default_factory=set)


class FaultServerLog:
    """Collects the server's log over its restarts; the server deletes files whose tasks it has forgotten.

    Attributes:
        problems: file -> why not all of it could be read. A kill may tear the last line of a file, and no other.
    """

    def __init__(self, state_dir: Path) -> None:
        self._folder = state_dir / "tasks"
        self.tasks: dict[str, FaultServerTask] = {}
        self.problems: dict[str, str] = {}

    def read(self) -> dict[str, FaultServerTask]:
        """All tasks so far, by id."""
        for path in sorted(self._folder.glob("*.log")):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as error:
                self.problems[path.name] = f"cannot be read: {error.strerror}"
                continue
            records, damaged_lines, _ = parse_record_lines(data)
            if damaged_lines:
                self.problems[path.name] = "has damaged lines"
            for record in records[1:]:
                task = self.tasks.setdefault(record["task"], FaultServerTask())
                if record["kind"] == "segment":
                    task.released_s.setdefault(record["data"]["index"], record["ready_s"])
                elif record["kind"] == "report" and record["report"]["kind"] in ("done", "value"):
                    task.reported_segments.add(record["report"]["segment"])
        return self.tasks
