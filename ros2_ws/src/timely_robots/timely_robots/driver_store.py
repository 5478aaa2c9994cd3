"""What a driver must know after a restart: the stop latch, the tasks that have begun, the last lease epoch.

Without a folder the store lives as long as the process. With one, every change is on the disk before the call returns.
Only a stop does not wait for the disk.
"""

import errno
import fcntl
import json
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from timely.core.errors import InvalidInput
from timely.core.files import append_file_line, core_write_file, file_ends_torn, file_errors
from timely_robots.disk_thread import DriverDiskThread

MAX_TASKS = 4096
"""Begun tasks that are kept; the oldest are dropped."""
MAX_BYTES = 4_000_000
"""Of a file. A longer list of begun tasks is written anew."""
CLOSE_S = 5.0
DISK_S = 0.3
"""Resets and leases wait so long for the disk: the driver publishes its state and runs its failsafe on their thread."""
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
"""What a disk says that takes no more: full, a quota or limit of the process, read-only, defect."""


class DriverStore:
    """The memory of one driver; safe to use from several threads.

    Args:
        path: the file; None keeps everything in memory.

    Attributes:
        stop_unsaved: the disk does not have the last stop yet.

    Raises:
        InvalidInput: the file cannot be read or is damaged, or another driver uses it. A driver must not start then,
            because it cannot know whether its robot was stopped.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock_file = _open_driver_lock_file(path.with_suffix(".lock")) if path is not None else None
        self._lock = threading.Lock()
        self._disk = DriverDiskThread("driver disk")
        self.stop_unsaved = False
        self._catching_up: Future[None] | None = None
        self._stop_reason: str | None = None
        self._stop_lock = threading.Lock()
        """Held for moments, so that a stop never waits for the disk."""
        self._stop_id = new_driver_stop_id()
        """Of the last stop, which may be released. No stop of another life of the driver has it."""
        self._open_stops = 0
        """Stops that were not yet answered."""
        self._epoch = 0
        self._tasks: dict[str, None] = {}
        try:
            if path is not None and path.exists():
                self._read(path)
            self._read_tasks()
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Let another driver use the file."""
        self._disk.close(CLOSE_S)
        if self._lock_file is not None:
            self._lock_file.close()

    @property
    def stop_reason(self) -> str | None:
        """Why the robot was stopped; None if no stop is latched."""
        return self._stop_reason

    @property
    def stop_id(self) -> str:
        """Names the latched stop; empty if none is latched."""
        return self._stop_id if self._stop_reason is not None else ""

    @contextmanager
    def stopping(self, reason: str) -> Iterator[None]:
        """Latch a stop in memory, without any wait; ``save`` brings it to the disk.

        No reset clears it before the block ends, so a stop that is answered as success is latched.
        """
        with self._stop_lock:
            self._stop_id, self._stop_reason = new_driver_stop_id(), reason
            self.stop_unsaved = True
            self._open_stops += 1
        try:
            yield
        finally:
            with self._stop_lock:
                self._open_stops -= 1

    def save(self) -> Future[None]:
        """Bring stop and epoch to the disk, which may take long; the future raises InvalidInput if it refuses."""
        return self._disk.submit(self._save)

    def catch_up(self) -> None:
        """Save a stop again that the disk has refused; to be called about once a second."""
        if self.stop_unsaved and (self._catching_up is None or self._catching_up.done()):
            self._catching_up = self.save()

    def _save(self) -> None:
        with self._lock:
            with self._stop_lock:
                stop_id, reason = self._stop_id, self._stop_reason
            self._write(reason)
            with self._stop_lock:
                self.stop_unsaved = self.stop_unsaved and stop_id != self._stop_id

    def clear_stop(self, stop_id: str = "") -> None:
        """Forget the stop; on the disk first.

        Args:
            stop_id: of the stop to forget; empty: any.

        Raises:
            InvalidInput: another stop is latched, is not yet answered or comes meanwhile, or the disk refuses or is
                late. The stop stays.
        """
        in_time = threading.Event()
        in_time.set()
        with self._stop_lock:
            last_id, latched_id, stopping = self._stop_id, self.stop_id, self._open_stops > 0
        if stopping:
            raise InvalidInput("the robot is being stopped")
        if latched_id and stop_id not in ("", latched_id):
            raise InvalidInput(f"the robot was stopped again: {latched_id}")
        clearing = self._disk.submit(self._clear_stop, last_id, in_time)
        try:
            clearing.result(DISK_S)
        except TimeoutError:
            with self._stop_lock:
                in_time.clear()
                is_cleared = self._stop_reason is None
            if not is_cleared:
                raise self._late_error() from None

    def _clear_stop(self, stop_id: str, in_time: threading.Event) -> None:
        with self._lock:
            if self._stop_id == stop_id:
                self._write(None)
            with self._stop_lock:
                if not in_time.is_set():
                    self.stop_unsaved = True
                    raise self._late_error()
                if self._stop_id != stop_id:
                    # A stop that came during the write saves itself afterwards.
                    raise InvalidInput("the robot is being stopped")
                self._stop_reason, self.stop_unsaved = None, False

    def next_epoch(self) -> int:
        """A lease epoch higher than every earlier one. Raises InvalidInput if the disk refuses or is late."""
        try:
            return self._disk.submit(self._next_epoch).result(DISK_S)
        except TimeoutError:
            raise self._late_error() from None

    def _late_error(self) -> InvalidInput:
        message = (
            f"the disk has not answered within {DISK_S:g} s; try again, or set state_dir to a faster disk"
        )
        return InvalidInput(message, where=str(self._path))

    def _next_epoch(self) -> int:
        with self._lock:
            self._epoch += 1
            self._write(self._stop_reason)
            return self._epoch

    def begin_task(self, task_id: str) -> bool:
        """Remember that a task begins; False if it has begun before. Raises InvalidInput if the disk refuses."""
        with self._lock:
            if task_id in self._tasks:
                return False
            size_bytes = self._append(task_id)
            self._tasks[task_id] = None
            while len(self._tasks) > MAX_TASKS:
                del self._tasks[next(iter(self._tasks))]
            if size_bytes > MAX_BYTES:
                self._write_tasks()
            return True

    def has_begun(self, task_id: str) -> bool:
        return task_id in self._tasks

    @property
    def _log(self) -> Path | None:
        """Tasks that began, one JSON string a line."""
        return None if self._path is None else self._path.with_suffix(".tasks")

    def _append(self, task_id: str) -> int:
        """Write that a task begins; returns the size of the file."""
        if self._log is None:
            return 0
        with file_errors(self._log, "cannot write it"):
            separator = b"\n" if file_ends_torn(self._log) else b""
            return append_file_line(self._log, separator + json.dumps(task_id).encode(), flush=True)

    def _write(self, stop_reason: str | None) -> None:
        if self._path is None:
            return
        state = {"stop_reason": stop_reason, "epoch": self._epoch}
        core_write_file(self._path, json.dumps(state))

    def _read(self, path: Path) -> None:
        try:
            if not path.is_file() or path.stat().st_size > MAX_BYTES:
                raise ValueError("no regular file, or too large")
            state: dict[str, Any] = json.loads(path.read_bytes())
            reason, epoch = state["stop_reason"], state["epoch"]
            if not isinstance(epoch, int) or not isinstance(reason, str | None):
                raise ValueError("wrong types")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"the driver's memory is damaged ({error}): check the robot, then delete the file",
                where=str(path),
            ) from error
        self._stop_reason, self._epoch = reason, epoch

    def _read_tasks(self) -> None:
        log = self._log
        if log is None or not log.is_file():
            return
        lines = log.read_bytes()[-MAX_BYTES:].split(b"\n")
        for line in lines[-MAX_TASKS - 1 :]:
            try:
                self._tasks[str(json.loads(line))] = None
            except ValueError:
                continue  # a line that a crash cut off: its task never moved the robot
        self._write_tasks()

    def _write_tasks(self) -> None:
        """Write the begun tasks anew, without those that were dropped."""
        if self._log is not None:
            with suppress(InvalidInput):  # a driver must start on a full disk too: its robot may fly
                core_write_file(self._log, "".join(json.dumps(task) + "\n" for task in self._tasks))


def new_driver_stop_id() -> str:
    """The id of a stop, of a driver or of a fleet; no other stop has it, in no life of either."""
    return secrets.token_hex(8)


def is_driver_storage_error(error: BaseException) -> bool:
    """The disk refused to take something, by an error or by what caused it."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in DISK_ERRORS


def _open_driver_lock_file(path: Path) -> IO[bytes]:
    """A lock file that belongs to this driver until it is closed or the process ends."""
    file: IO[bytes] | None = None
    try:
        file = path.open("wb")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if file is not None:
            file.close()
        reason = "another driver uses it" if isinstance(error, BlockingIOError) else error.strerror
        raise InvalidInput(f"cannot be used: {reason}", where=str(path)) from error
    return file


def robot_store_path(folder: str, name: str) -> Path:
    """The file of a driver in a folder; ``name`` is its namespace.

    Raises:
        InvalidInput: the folder cannot be made.
    """
    place = Path(folder).expanduser()
    with file_errors(place, "cannot make it"):
        place.mkdir(parents=True, exist_ok=True)
    stem = name.strip("/").replace("/", ".") or "robot"
    return place / f"{stem}.json"
