"""One driver a robot on a machine."""

import socket

from timely.core.errors import InvalidInput


def claim_robot(kind: str, address: str) -> socket.socket:
    """Exclude other drivers of a robot on this machine until the socket closes or the process ends.

    Raises:
        InvalidInput: another driver has it.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0timely-{kind}-{address}")
    except OSError as error:
        claim.close()
        raise InvalidInput("another driver on this machine has the robot", where=address) from error
    return claim
