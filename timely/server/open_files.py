"""Files that the server may open: each connection is one, and a stop and the task log need theirs at any time."""

import logging
import resource
from dataclasses import replace

from timely.server.settings import ServerSettings

log = logging.getLogger(__name__)

OTHER_FILES = 512
"""Open files beside the connections within the limit: those over it, logs, and the engine's sockets."""

FEWEST_CONNECTIONS = 64


def settings_within_open_files(settings: ServerSettings) -> ServerSettings:
    """Raise the process's limit of open files as far as the settings need; where it stays lower, limit connections.

    Service managers start programs with a limit of 1,024 by default. A program at its limit accepts no connection.
    """
    target = settings.max_connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = target if hard == resource.RLIM_INFINITY else min(target, hard)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return settings
    if files > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    if files == target:
        return settings
    connections = min(settings.max_connections, max(FEWEST_CONNECTIONS, files - OTHER_FILES))
    log.warning("%d open files are allowed (ulimit -n), so connections are limited to %d", files, connections)
    return replace(settings, max_connections=connections)
