"""The write-ahead log of all tasks, from which a server that was killed goes on.

The log is a folder of record files (``timely.core.record_log``). The first record of a file names the format version
and relates the server's clock to the wall clock. Every other record has a ``kind`` and a ``task``:

- ``task``, before the generation starts: ``request`` without its token, ``token`` (SHA-256), ``owner``, ``replans``,
  ``executed``, ``arrival_s``, ``network_s``, ``annotation``, ``fingerprint``. Where its principal has a
  rate, ``bucket`` says how many permits are left, and when.
- ``segment``, written before it is sent: ``data`` of its event, ``ready_s``, ``execution_s``, ``pace``, and where the
  engine has them ``token_ids`` and ``last``.
- ``replanned``, when another model or skill set goes on with the plan: ``history`` of the prompt, ``fingerprint``.
- ``report``, before it is answered: ``report``, ``at_s``.
- ``urgency``, by an operator: ``level``.
- ``ending``, when a generation is to end early: ``ending``.
- ``generated``: ``ending``, ``done``, ``segments``, ``at_s``, and ``name`` and ``data`` of the last event.
- ``settled``: ``at_s``, ``ending``. ``forgotten``: the id may be used again.

An accepted task and a report are on the disk before they are answered. A segment is with the operating system before
it is sent, and on the disk a few milliseconds later, unless ``flush_segments`` is set. Then only a failure of the whole
machine can lose its record. The plan would go on with a segment of the same id, which clients and drivers drop.

Records that a full disk refuses are kept in memory, and written in order as soon as there is room. New tasks are
refused until then, which bounds them.

A file is closed at ``FILE_BYTES`` and deleted when all its tasks are forgotten, unless an earlier file that stays names
one of them too. So the log is bounded by the tasks of the last minutes. One server at a time may use a folder. A server
whose folder cannot be used keeps no tasks.

A release may add kinds of records, fields, and places at the end of a list. An older server leaves them out, so tasks
must be restored without them. Whatever it adds has a default for records of older servers. Any other change of the
format raises ``VERSION``.
"""

import asyncio
import fcntl
import logging
import math
import os
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack, suppress
from contextvars import Context
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, Any

from timely.core.clock import Clock, machine_boot_id
from timely.core.errors import InvalidInput
from timely.core.files import flush_file_names
from timely.core.record_log import RecordFile, read_record_log
from timely.core.reports import ExecutionReport
from timely.engines.base import SegmentReady
from timely.server.access.usage import BucketLevel
from timely.server.tasks.request import server_task_utility_to_wire
from timely.server.tasks.task import Task, TaskEnding

log = logging.getLogger(__name__)

FOLDER = "tasks"
"""In the server's state folder."""

LOG_FILES = "[0-9]" * 8 + ".log"
VERSION = 1
FILE_BYTES = 4 * 1024 * 1024
MEASURED_SEGMENTS = 1000
TIMES = ("now_s", "arrival_s", "ready_s", "at_s")
"""Fields of records on the server's clock."""

KINDS = frozenset(
    ("task", "segment", "replanned", "report", "urgency", "ending", "generated", "settled", "forgotten")
)

NAMED_LINES = 10
"""Most damaged lines of a file that the log names."""

CATCH_UP_S = 1.0
"""Records that the disk refused are tried again so often."""

Record = dict[str, Any]


@dataclass(slots=True)
class _FileTasks:
    """The tasks with a record in a file, and those of them that are not forgotten."""

    task_ids: set[str] = field(default_factory=set)
    live: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _MachineStart:
    """A start of the machine, by the headers and records of its files.

    Attributes:
        wall_s, now_s: the wall clock and the server's clock in the latest header.
        latest_s: latest time of a record, on the server's clock.
    """

    wall_s: float = 0.0
    now_s: float = 0.0
    latest_s: float = -math.inf

    def add(self, header: Record, records: list[Record]) -> None:
        """Add a file, behind earlier ones."""
        self.wall_s, self.now_s = float(header["wall_s"]), float(header["now_s"])
        times = (float(record[name]) for record in records for name in TIMES if name in record)
        self.latest_s = max(self.latest_s, *times)


class TaskLog:
    """Keeps what happens to tasks. Without a folder it keeps nothing, and no call waits.

    A record is with the operating system when ``write`` returns, so it survives the end of the process. A thread
    brings records to the disk, several at once. ``durable`` waits for it.

    Attributes:
        segment_costs_s: by how much the log has delayed the latest segments, seconds.
        problem: why the last record could not be kept; empty if it could.
    """

    def __init__(self, folder: Path | None, clock: Clock, *, flush_segments: bool = False) -> None:
        self.segment_costs_s: deque[float] = deque(maxlen=MEASURED_SEGMENTS)
        self.problem = ""
        self._folder = folder
        self._clock = clock
        self._flush_segments = flush_segments
        self._lock: IO[bytes] | None = None
        self._open_folder: Path | None = None
        """The folder while it is in use; None also if it cannot be used."""
        self._number = 0
        """Of the latest file."""
        self._file: RecordFile | None = None
        self._full: list[RecordFile] = []
        self._files: dict[Path, _FileTasks] = {}
        """The oldest first."""
        self._refused_records: deque[Record] = deque()
        """In order, what the disk has not taken yet."""
        self._retry: asyncio.TimerHandle | None = None
        self._swapping = threading.Lock()
        self._written_count = self._on_disk = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def flushes_segments(self) -> bool:
        """A segment has to be on the disk before it is sent."""
        return self._open_folder is not None and self._flush_segments

    @property
    def segment_cost_ms(self) -> float | None:
        """Median delay of the latest segments by the log, ms; None without any."""
        return round(1e3 * median(self.segment_costs_s), 4) if self.segment_costs_s else None

    # ------------------------------------------------------------------ opening and closing

    async def open(self) -> list[Record]:
        """Open the log; returns the records that earlier servers left, in order.

        Each has ``shift_s``: what turns its times into times of this server's clock.

        Raises:
            InvalidInput: another server uses the folder, or a file is of another version or cannot be read.
        """
        if self._folder is None:
            return []
        self._loop = asyncio.get_running_loop()
        records = await asyncio.to_thread(self._open, self._folder)
        if self._open_folder is None:
            return []
        # A disk that is full already costs new tasks only, as one that fills up later.
        self._catch_up(self._open_folder)
        self._thread = threading.Thread(target=self._flush_records, name="task-log", daemon=True)
        self._thread.start()
        return records

    def _open(self, folder: Path) -> list[Record]:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take_lock(folder)
        except OSError as error:
            log.error("tasks are not kept, a restart would lose them: %s", error)
            return []
        records: list[Record] = []
        other_kinds: Counter[str] = Counter()
        starts: dict[str, _MachineStart] = {}
        for path in sorted(folder.glob(LOG_FILES)):
            self._number = int(path.stem)
            file_records = self._read(path)
            if not file_records:
                continue
            self._files[path] = _FileTasks()
            header = file_records[0]
            start = starts.setdefault(header["boot"], _MachineStart())
            start.add(header, file_records)
            for record in file_records[1:]:
                if record["kind"] not in KINDS:
                    other_kinds[record["kind"]] += 1
                    continue
                records.append({**record, "boot": header["boot"]})
                self._note(record, path)
        if other_kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in other_kinds.items())
            log.warning("%s: records of a later release are left out: %s", folder, counts)
        self._delete_files()
        self._open_folder = folder
        shifts_s = {boot: self._shift_s(boot, start) for boot, start in starts.items()}
        return [{**record, "shift_s": shifts_s[record["boot"]]} for record in records]

    def _take_lock(self, folder: Path) -> None:
        """Keep other servers from the folder; again where the file of the lock was removed.

        Raises:
            InvalidInput: another server uses the folder. OSError: the file cannot be made.
        """
        lock = (folder / "lock").open("ab")
        if self._lock is not None and os.path.samestat(
            os.fstat(lock.fileno()), os.fstat(self._lock.fileno())
        ):
            lock.close()
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            if not isinstance(error, BlockingIOError):
                raise
            raise InvalidInput("another server uses it", where=str(folder)) from error
        before, self._lock = self._lock, lock
        if before is not None:
            before.close()

    def _read(self, path: Path) -> list[Record]:
        """The header and the records of a file; nothing without a header, which is on the disk before any record is."""
        records, damaged_lines, is_torn = read_record_log(path)
        if is_torn:
            log.warning("%s: its last line is torn, as a killed server leaves it, and left out", path)
        if damaged_lines:
            numbers = ", ".join(str(number) for number in damaged_lines[:NAMED_LINES])
            log.error("%s: damaged lines are left out (%d): %s", path, len(damaged_lines), numbers)
        header = records[0] if records else {}
        if records and "timely_tasks" not in header:
            log.error("%s: its first line is damaged, so that its tasks are left out", path)
            return []
        version = header.get("timely_tasks")
        if records and version != VERSION:
            raise InvalidInput(
                f"format version {version!r}, this server reads {VERSION}; move the file away to start without it",
                where=str(path),
            )
        return records

    def _shift_s(self, boot: str, start: _MachineStart) -> float:
        """What turns times of a start of the machine into times of this server's clock, seconds."""
        if boot and boot == machine_boot_id():
            return 0.0
        # A wall clock that was set back meanwhile brings no record from the future.
        elapsed_s = max(time.time() - start.wall_s, start.latest_s - start.now_s)
        return self._clock.now() - elapsed_s - start.now_s

    def _new_file(self, folder: Path, lines: bytes = b"") -> RecordFile:
        """Begin a file, with the lines of records of one before it."""
        path, file = folder / f"{self._number + 1:08d}.log", None
        try:
            file = RecordFile(path)
            header = {"timely_tasks": VERSION, "boot": machine_boot_id(), "wall_s": time.time()}
            file.append({**header, "now_s": self._clock.now()})
            if lines:
                file.append_lines(lines)
        except OSError as error:
            if file is not None:
                file.close()
                path.unlink(missing_ok=True)
            raise InvalidInput(f"cannot be written: {error.strerror or error}", where=str(path)) from error
        self._files[path] = _FileTasks()
        self._number += 1
        with self._swapping:
            if self._file is not None:
                self._full.append(self._file)
            self._file = file
        return file

    def _restored_file(self, folder: Path, file: RecordFile) -> RecordFile:
        """A new file with the records of one whose name is gone: the open file still has them."""
        self._take_lock(folder)
        _, _, lines = file.read().partition(b"\n")
        new = self._new_file(folder, lines)
        self._files[new.path] = self._files.pop(file.path)
        log.warning("%s was removed or renamed: its records are in %s", file.path, new.path)
        for path, tasks in self._files.items():
            if tasks.live and not path.exists():
                log.error("%s was removed: a restart would lose tasks of it (%d)", path, len(tasks.live))
        return new

    async def close(self) -> None:
        """Bring the last records to the disk and give the folder up. Safe to call twice."""
        thread, self._thread = self._thread, None
        if self._refused_records:
            self._catch_up_later()
        self._open_folder = None
        if self._retry is not None:
            self._retry.cancel()
        if thread is not None:
            self._closing = True
            self._wake.set()
            await asyncio.to_thread(thread.join)
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._delete_files()
        if self._lock is not None:
            self._lock.close()

    # ------------------------------------------------------------------ records

    def write(self, kind: str, task_id: str, **fields: Any) -> None:
        """Keep a record; one that the disk refuses is written later, and is an error in the server's log."""
        if self._open_folder is not None:
            self._refused_records.append({"kind": kind, "task": task_id, **fields})
            self._catch_up(self._open_folder)

    def _catch_up(self, folder: Path) -> None:
        """Begin the first file, and write all records that are not in a file yet."""
        try:
            file = self._file or self._new_file(folder)
            if not file.has_its_name:
                file = self._restored_file(folder, file)
            if self.problem and not self._refused_records:
                file.check_room()
            while self._refused_records:
                if file.bytes > FILE_BYTES:
                    file = self._new_file(folder)
                record = self._refused_records[0]
                try:
                    file.append(record)
                except (TypeError, ValueError):
                    # It must keep neither other records from the disk, nor its task from going on.
                    log.exception("a record of task %s is no JSON", record["task"])
                    self._refused_records.popleft()
                    continue
                self._written_count += 1
                if self._note(self._refused_records.popleft(), file.path):
                    self._delete_files(file.path)
        except (OSError, InvalidInput) as error:
            if not self.problem:
                log.error("tasks are not kept any more, a restart would lose them: %s", error)
            self.problem = str(error)
            with suppress(OSError):
                # The disk may be full of this log, and then nothing but this makes room.
                self._delete_files(self._file.path if self._file is not None else None)
            if self._loop is not None and self._retry is None:
                self._retry = self._loop.call_later(CATCH_UP_S, self._catch_up_later, context=Context())
            return
        if self.problem:
            log.warning("tasks are kept again")
        self.problem = ""
        self._wake.set()

    def _catch_up_later(self) -> None:
        self._retry = None
        if self._open_folder is not None:
            self._catch_up(self._open_folder)

    def task(self, task: Task, bucket: BucketLevel | None = None) -> None:
        """A task was admitted. If the disk refuses the record, ``problem`` says why, and it is not kept."""
        annotation = task.annotation
        urgency = annotation.urgency if annotation is not None else None
        self.write(
            "task",
            task.task_id,
            request={
                **task.request.model_dump(mode="json", exclude={"report_token", "tuf"}),
                "tuf": server_task_utility_to_wire(task.request.tuf),
            },
            token=task.token_digest,
            owner=task.owner,
            replans=task.replans,
            executed=task.executed_before,
            kv_tokens=task.kv_tokens,
            eta_s=task.eta_s,
            value_wait_s=None if task.value_wait_s == math.inf else task.value_wait_s,
            arrival_s=task.arrival_s,
            network_s=task.network_s,
            annotation=None
            if annotation is None or urgency is None
            else [urgency.level, urgency.source, urgency.confidence, annotation.expected_tokens],
            fingerprint=task.fingerprint,
            **({"bucket": bucket} if bucket is not None else {}),
        )
        if self._refused_records:
            self._refused_records.pop()

    def segment(self, event: SegmentReady, data: dict[str, Any]) -> None:
        """A segment is about to be sent; ``data`` is that of its event on the wire."""
        fields: dict[str, Any] = {"token_ids": event.token_ids} if event.token_ids else {}
        if event.last:
            fields["last"] = True
        self.write(
            "segment",
            event.task_id,
            data=data,
            ready_s=event.ready_s,
            execution_s=event.execution_s,
            pace=event.pace,
            **fields,
        )

    def write_replan(self, task: Task) -> None:
        """Record that another model or skill set continues the plan after the segments so far."""
        self.write("replanned", task.task_id, history=task.request.history, fingerprint=task.fingerprint)

    def report(self, task: Task, report: ExecutionReport, now: float) -> None:
        self.write("report", task.task_id, report=report.to_dict(), at_s=now)

    def urgency(self, task: Task, level: int) -> None:
        """Record the urgency that an operator gave a task."""
        self.write("urgency", task.task_id, level=level)

    def write_ending(self, task_id: str, ending: TaskEnding) -> None:
        """Record that a generation ends early, so that no later start of the server continues it."""
        self.write("ending", task_id, ending=astuple(ending))

    def write_generation(self, task: Task, name: str, data: dict[str, Any]) -> None:
        """The generation is over; ``name`` and ``data`` are those of the last event."""
        self.write(
            "generated",
            task.task_id,
            ending=astuple(task.ending) if task.ending is not None else None,
            done=asdict(task.done) if task.done is not None else None,
            segments=len(task.track.segments),
            at_s=task.generated_s,
            name=name,
            data=data,
        )

    def write_end(self, task: Task) -> None:
        """Nothing more is expected of a task. Its execution may have ended otherwise than its generation."""
        ending = astuple(task.ending) if task.ending is not None else None
        self.write("settled", task.task_id, at_s=task.settled_s, ending=ending)

    async def durable(self) -> None:
        """Return when all records so far are on the disk."""
        loop = self._loop
        if self._file is None or loop is None or self._on_disk >= self._written_count:
            return
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append((self._written_count, future))
        self._wake.set()
        await future

    def forget(self, task_id: str) -> None:
        """A task is over for good; files without other tasks are deleted."""
        self.write("forgotten", task_id)

    def _note(self, record: Record, path: Path) -> bool:
        """A file has the record; True if a file has no live task any more."""
        task_id = record["task"]
        self._files[path].task_ids.add(task_id)
        if record["kind"] != "forgotten":
            self._files[path].live.add(task_id)
            return False
        is_empty = False
        for tasks in self._files.values():
            if task_id in tasks.live:
                tasks.live.remove(task_id)
                is_empty |= not tasks.live
        return is_empty

    def _delete_files(self, current: Path | None = None) -> None:
        """Delete the files without live tasks; a task counts as forgotten before the disk takes the record of it.

        A file whose tasks an earlier one names too stays as long as that. Without its record that such a task is
        forgotten, the next server would take it for a live one.
        """
        needed_ids: set[str] = set()
        over_ids = {record["task"] for record in self._refused_records if record["kind"] == "forgotten"}
        for path, tasks in list(self._files.items()):
            if path == current or tasks.live - over_ids or not needed_ids.isdisjoint(tasks.task_ids):
                needed_ids |= tasks.task_ids
            else:
                del self._files[path]
                path.unlink(missing_ok=True)

    # ------------------------------------------------------------------ the thread

    def _flush_records(self) -> None:
        closing = has_failed = False
        while not closing:
            self._wake.wait()
            self._wake.clear()
            closing = self._closing
            with self._swapping:
                file, full, self._full = self._file, self._full, []
                written_count = self._written_count
            try:
                with ExitStack() as files:
                    for old in full:
                        files.callback(old.close)
                    for old in full:
                        old.flush()
                    if file is not None:
                        file.flush()
                        if full or not self._on_disk:
                            flush_file_names(file.path.parent)
                has_failed = False
            except OSError as error:
                if not has_failed:
                    log.error("tasks may be lost when this machine fails: %s", error)
                has_failed = True
            self._on_disk = written_count
            # A call that begins to wait after this look wakes this thread once more.
            if self._waiting and self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._end_waits)

    def _end_waits(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._on_disk:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
