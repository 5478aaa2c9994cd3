"""Ends the discovery of a ROS 2 context before its last node is destroyed, where Fast DDS could hang for ever.

With the last node, rmw_fastrtps deletes the participant's listener. Fast DDS (3.2) waits there for a running callback
of discovery, until ``time_point::max()``. In the wheels this time overflows, because they do without the C library's
``pthread_cond_clockwait``. The wait becomes a loop that holds the lock which the callback needs, and Python's lock too.
Such a process ends by SIGKILL alone: 2 of 288 did that ended beside others (docs/experiments). With a finite deadline
the same wait is right.
"""

import contextlib
import ctypes
import logging
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import rclpy
from rclpy._rclpy_pybind11 import InvalidHandle

log = logging.getLogger(__name__)

CALLBACK_S = 5
"""Longest wait for a running callback, whole seconds."""

_PARTICIPANT = "_ZN16rmw_fastrtps_cpp22get_domain_participantEP10rmw_node_s"
_SET_LISTENER = (
    "_ZN8eprosima7fastdds3dds17DomainParticipant12set_listenerEPNS1_25DomainParticipantListenerE"
    "NSt6chrono8durationIlSt5ratioILl1ELl1EEEE"
)
"""Public functions of rmw_fastrtps_cpp and of Fast DDS 3, as C++ names them."""


class _FastDds(NamedTuple):
    rmw_node: Any
    participant: Any
    set_listener: Any


def end_ros_discovery(nodes: Sequence[Any]) -> bool:
    """Let the context of these nodes learn of no more nodes and topics. What is connected stays so.

    Returns:
        True if it did; False without a node that lives, with another middleware, or if a callback went on for
        ``CALLBACK_S``.
    """
    for node in nodes:
        with contextlib.suppress(InvalidHandle), node.handle:  # the next one, if this one is destroyed
            return (library := _fast_dds()) is not None and _end_fast_dds_discovery(
                library, node.handle.pointer
            )
    return False


def _end_fast_dds_discovery(library: _FastDds, node: int) -> bool:
    rmw_node = library.rmw_node(node)
    participant = library.participant(rmw_node) if rmw_node else None
    return bool(participant) and library.set_listener(participant, None, CALLBACK_S) == 0


@cache
def _fast_dds() -> _FastDds | None:
    """The functions of the libraries that this process uses; None with another middleware or version."""
    if rclpy.get_rmw_implementation_identifier() != "rmw_fastrtps_cpp":
        return None
    try:
        # A library that is loaded already is found by its name. Symbols are also looked for in those that it needs.
        rmw, rcl = ctypes.CDLL("librmw_fastrtps_cpp.so"), ctypes.CDLL("librcl.so")
        library = _FastDds(rcl.rcl_node_get_rmw_handle, rmw[_PARTICIPANT], rmw[_SET_LISTENER])
    except (OSError, AttributeError) as error:
        log.debug("this Fast DDS may hang at the end: %s", error)
        return None
    for function in library[:2]:
        function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
    library.set_listener.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    library.set_listener.restype = ctypes.c_int32
    return library
