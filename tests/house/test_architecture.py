"""Checks the architecture: every import in the tree is allowed by docs/rooms.yaml, also imports named in strings."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs" / "rooms.yaml"
ROS_SOURCES = ROOT / "ros2_ws" / "src"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
NAMING = (ast.Import, ast.ImportFrom, ast.Constant)
LEAVES = (ast.Name, ast.expr_context)
"""More than half of the nodes, and no import in them."""
STRING_THAT_NAMES = re.compile(r"""["'](timely|lrtrace)[._]""")
NAMED_IN_TEXT = re.compile(r"((?:timely|lrtrace)(?:\.\w+)+|timely_\w+(?:\.\w+)*)\.?(?::\w+)?")


@dataclass(frozen=True)
class Room:
    """One row of the table."""

    name: str
    doors: frozenset[str]
    libraries: frozenset[str]
    in_functions: frozenset[str]


@dataclass(frozen=True)
class Import:
    """One import in one file: the dotted name, where it stands and how."""

    name: str
    path: Path
    line: int
    lazy: bool
    typing_only: bool
    in_text: bool = False

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


@cache
def rooms() -> dict[str, Room]:
    """The rooms of docs/rooms.yaml."""
    described: dict[str, dict[str, list[str]]] = yaml.safe_load(TABLE.read_text())["rooms"]
    return {
        name: Room(name, *(frozenset(row.get(key, ())) for key in ("imports", "libraries", "in_functions")))
        for name, row in described.items()
    }


@cache
def modules() -> dict[str, Path]:
    """Every module of the project by dotted name."""
    paths: dict[str, Path] = {}
    roots = [ROOT, *(path for path in sorted(ROS_SOURCES.glob("*")) if path.is_dir())]
    for root in roots:
        for package in ("timely", "lrtrace") if root == ROOT else (root.name,):
            for path in sorted((root / package).rglob("*.py")):
                parts = path.relative_to(root).with_suffix("").parts
                paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def room_of(module: str) -> Room | None:
    """The innermost room that a module is in; the row `timely` is for that one module, not for all below it."""
    inner = module
    while inner:
        if inner in rooms() and (inner != "timely" or module == "timely"):
            return rooms()[inner]
        inner = inner.rpartition(".")[0]
    return None


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """All imports of a module, also those inside functions and those named in strings (registries, ``-m``)."""
    path = modules()[module]
    text = path.read_text()
    return tuple(
        _walk(ast.parse(text, str(path)), module, path, in_text=bool(STRING_THAT_NAMES.search(text)))
    )


def _walk(tree: ast.Module, module: str, path: Path, *, in_text: bool) -> Iterator[Import]:
    """Expressions are looked into only for names ``in_text``: they are most of the nodes."""
    skipped = LEAVES if in_text else (ast.expr, ast.expr_context)
    pending: list[tuple[ast.AST, bool, bool]] = [(tree, False, False)]
    while pending:
        node, lazy, typing_only = pending.pop()
        if isinstance(node, FUNCTIONS):
            lazy = True
        elif isinstance(node, ast.If):
            typing_only = typing_only or "TYPE_CHECKING" in ast.unparse(node.test)
        elif isinstance(node, NAMING):
            for name in _names(node, module, path):
                yield Import(name, path, node.lineno, lazy, typing_only, isinstance(node, ast.Constant))
        for value in vars(node).values():
            for child in value if type(value) is list else (value,):
                if isinstance(child, ast.AST) and not isinstance(child, skipped):
                    pending.append((child, lazy, typing_only))


def _names(node: ast.AST, module: str, path: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = node.module or ""
        if node.level:
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            base = package.split(".")[: len(package.split(".")) - node.level + 1]
            source = ".".join([*base, source] if source else base)
        # `from package import module` is an import of the module, not of the package.
        whole = (f"{source}.{alias.name}" for alias in node.names)
        yield from sorted({full if full in modules() else source for full in whole})
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        # Registries, `-m` of sub-processes and `import_module`: a whole string, or the fixed beginning of an f-string.
        match = NAMED_IN_TEXT.fullmatch(node.value)
        name = match.group(1) if match else ""
        while name and name not in modules():  # `package.module.function` is an import of the module
            name = name.rpartition(".")[0]
        if name and name not in ("timely", "lrtrace"):
            yield name


def test_the_table_is_read() -> None:
    assert {"timely.core", "timely.engines.vllm", "lrtrace", "timely_bridge"} <= set(rooms())
    assert rooms()["timely.client"] == Room(
        "timely.client", frozenset({"timely.core"}), frozenset({"httpx"}), frozenset()
    )
    for room in rooms().values():
        unknown = {door for door in room.doors if door not in {*rooms(), *modules(), "timely_interfaces"}}
        assert not unknown, f"{room.name} has doors into rooms that are not drawn: {unknown}"


def test_every_module_is_in_a_room() -> None:
    assert len(modules()) > 20
    homeless = [str(path.relative_to(ROOT)) for name, path in modules().items() if room_of(name) is None]
    assert not homeless, f"no row in {TABLE.name} for {homeless}"
    assert room_of("timely.cellar.shelf") is None


def test_only_drawn_doors() -> None:
    wrong = [
        complaint
        for name in modules()
        for entry in imports_of(name)
        if (room := room_of(name)) is not None and (complaint := _complaint(room, entry))
    ]
    assert not wrong, "\n".join(wrong)


def _complaint(room: Room, entry: Import) -> str:
    top = entry.name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return ""
    if entry.name in modules() or top in {"timely", "lrtrace", "timely_interfaces"} | _ros_packages():
        target = room_of(entry.name)
        destination = target.name if target else top
        if destination == room.name or {destination, entry.name} & room.doors:
            return ""
        return f"{entry}: {room.name} has no door to {destination} ({entry.name})"
    if top in room.libraries or (top in room.in_functions and (entry.lazy or entry.typing_only)):
        return ""
    how = "may import it only inside functions" if top in room.in_functions else "does not have that library"
    return f"{entry}: {room.name} {how}: {entry.name}"


def _ros_packages() -> set[str]:
    return {path.name for path in ROS_SOURCES.glob("*") if path.is_dir()}


def test_no_module_imports_itself_in_a_circle() -> None:
    graph = {
        name: {entry.name for entry in imports_of(name) if not (entry.typing_only or entry.in_text)}
        & set(modules())
        for name in modules()
    }
    circles = [circle for name in graph if (circle := _circle(graph, name))]
    assert not circles, f"circular imports: {circles[0]}"


def _circle(graph: dict[str, set[str]], start: str) -> list[str]:
    """The shortest way from a module back to itself, or nothing."""
    ways = [[start]]
    seen: set[str] = set()
    for way in ways:
        for target in sorted(graph[way[-1]]):
            if target == start:
                return [*way, start]
            if target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return []


def test_rooms_do_not_lead_into_one_another_in_a_circle() -> None:
    # A door to one module is not a door to its room; that modules make no circle is tested above.
    doors = {room.name: {door for door in room.doors if door in rooms()} for room in rooms().values()}
    circles = [circle for name in doors if (circle := _circle(doors, name))]
    assert not circles, f"doors in a circle: {circles[0]}"


def test_every_drawn_door_is_used() -> None:
    """A row that allows more than its room does tells readers of ties that are not there."""
    used: dict[str, set[str]] = {name: set() for name in rooms()}
    for name in modules():
        room = room_of(name)
        assert room is not None
        for entry in imports_of(name):
            target = room_of(entry.name) if entry.name in modules() else None
            used[room.name] |= {entry.name, target.name} if target else {entry.name.partition(".")[0]}
    for room in rooms().values():
        idle = (room.doors | room.libraries | room.in_functions) - used[room.name]
        assert not idle, f"{room.name} makes no use of {sorted(idle)}; take them out of its row"


def test_a_door_that_is_not_drawn_is_found() -> None:
    here = Path(__file__)
    core = rooms()["timely.core"]
    assert _complaint(core, Import("timely.engines.base", here, 1, False, False))
    assert _complaint(core, Import("yaml", here, 1, False, False))
    assert not _complaint(core, Import("numpy", here, 1, False, False))
    assert _complaint(rooms()["lrtrace"], Import("timely.core.errors", here, 1, True, False))
    assert _complaint(
        rooms()["timely.server"], Import("timely.disciplines.timelyllm.pud", here, 1, False, False)
    )
    one = Room("timely.core", frozenset({"timely.disciplines.registry"}), frozenset(), frozenset({"rclpy"}))
    assert not _complaint(one, Import("timely.disciplines.registry", here, 1, False, False))
    assert _complaint(one, Import("timely.disciplines.timelyllm.pud", here, 1, False, False))
    assert _complaint(one, Import("rclpy", here, 1, False, False))
    assert not _complaint(one, Import("rclpy", here, 1, True, False))


def test_only_the_vllm_room_knows_vllm() -> None:
    def knowing(library: str) -> set[str]:
        return {room.name for room in rooms().values() if library in room.libraries | room.in_functions}

    assert knowing("vllm") == {"timely.engines.vllm"}
    assert {room.name for room in rooms().values() if "torch" in room.libraries} == {"timely.engines.vllm"}


def test_ros_stays_in_its_workspace() -> None:
    at_import = {room.name for room in rooms().values() if "rclpy" in room.libraries}
    assert {name.partition(".")[0] for name in at_import} == {
        "timely_bridge",
        "timely_robots",
        "timely_ros_bench",
    }
    assert {room.name for room in rooms().values() if "rclpy" in room.in_functions} <= {"timely.cli"}
