"""Names of robots: each is the ROS namespace of its driver."""

from collections.abc import Collection

from timely.core.errors import InvalidInput


def check_robot_names(names: Collection[object], where: str) -> None:
    """Raise InvalidInput unless the names can be namespaces of different robots."""
    for name in names:
        if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
            raise InvalidInput(
                f"{str(name)[:140]!r} cannot be a ROS namespace: use letters, digits and _", where=where
            )
    if len(set(names)) != len(names):
        raise InvalidInput("names a robot twice", where=where)


def robot_name_of(namespace: str) -> str:
    """The robot's name for bridge, server and lists of principals: without the namespaces that its own is in."""
    return namespace.rpartition("/")[2]
