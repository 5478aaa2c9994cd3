"""Put the ROS 2 side into a Python environment without a ROS 2 install: interfaces, bridge, robot drivers.

    .venv/bin/python scripts/build_interfaces.py [--python .venv/bin/python] [--force]

It builds ``timely_interfaces`` into a wheel under ``build/wheels``, once per state of its sources. That takes half a
minute and needs a C compiler. It installs the wheel, and the pure Python packages in editable mode. If everything is
installed it says so and returns. It uses the standard library only, since it runs before other packages exist.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "ros2_ws" / "src"
INTERFACES = SOURCES / "timely_interfaces"
PYTHON_PACKAGES = ("timely_robots", "timely_bridge", "timely_ros_bench")
WHEELS = ROOT / "build" / "wheels"
LIMIT_S = 1800

PROBE = """
import importlib.metadata as m, importlib.util as u, json, sys
seen = {"version": "%d.%d" % sys.version_info[:2], "prefix": sys.prefix, "editable": {}}
for name in sys.argv[1:]:
    try:
        found = m.distribution(name)
    except m.PackageNotFoundError:
        continue
    if u.find_spec(name.replace("-", "_")) is not None:
        seen["editable"][name] = json.loads(found.read_text("direct_url.json") or "{}").get("url", "")
print(json.dumps(seen))
"""


class Failed(Exception):
    """Said in one line; exit status 1."""


def run(command: Sequence[str], *, log: Path | None = None) -> None:
    """Run a command with a deadline; its output goes to ``log``, whose end is shown if it fails.

    Raises:
        Failed: it could not start, failed, or took too long.
    """
    with tempfile.TemporaryFile() as scratch:
        try:
            process = subprocess.run(
                command, stdout=scratch, stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False, cwd=ROOT
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Failed(f"{command[0]}: {error}") from error
        scratch.seek(0)
        output = scratch.read()
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(output)
    if process.returncode != 0:
        sys.stderr.write(output.decode(errors="replace")[-4000:])
        raise Failed(f"{' '.join(command[:4])} ... failed with status {process.returncode}")


def source_files() -> list[Path]:
    """Everything the interface wheel is made of, sorted."""
    skip = {"build", "__pycache__"}
    return sorted(
        path
        for path in INTERFACES.rglob("*")
        if path.is_file() and not skip & set(path.relative_to(INTERFACES).parts) and path.suffix != ".md"
    )


def source_hash(python_version: str) -> str:
    """Names the state of the sources, the Python and the machine a wheel is good for."""
    digest = hashlib.sha256(f"{python_version} {platform.machine()}".encode())
    for path in source_files():
        digest.update(f"\0{path.relative_to(INTERFACES)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def uv(python: Path) -> list[str]:
    """The uv of that environment, of this one, or of the PATH.

    Raises:
        Failed: there is none.
    """
    for candidate in (python.parent / "uv", Path(sys.executable).parent / "uv"):
        if candidate.is_file():
            return [str(candidate)]
    executable = shutil.which("uv")
    if executable is None:
        raise Failed(f"uv is not installed: {python} -m pip install uv")
    return [executable]


def install(python: Path, *arguments: str) -> None:
    run([*uv(python), "pip", "install", "--python", str(python), "--no-deps", *arguments])


def build_wheel(tool: list[str], python: Path, target: Path) -> Path:
    """Build the interface wheel into ``target`` from a copy of its sources; nothing is written beside them."""
    if shutil.which("cc") is None and shutil.which("gcc") is None and "CC" not in os.environ:
        raise Failed("building timely_interfaces needs a C compiler: apt-get install build-essential")
    with tempfile.TemporaryDirectory(prefix="timely_interfaces.") as folder:
        copy = Path(folder) / "timely_interfaces"
        for path in source_files():
            to = copy / path.relative_to(INTERFACES)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, to)
        # uv does not read pip's settings; the two variables name the same thing.
        links = os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS", "")
        extra = [part for link in links.replace(",", " ").split() for part in ("--find-links", link)]
        fresh = Path(folder) / "out"
        run(
            [*tool, "build", "--wheel", "--python", str(python), *extra, "-o", str(fresh), str(copy)],
            log=WHEELS / "build.log",
        )
        wheel = next(fresh.glob("*.whl"))
        target.mkdir(parents=True, exist_ok=True)
        # Renamed into place whole: an interrupted build leaves no half-written wheel behind.
        partial = target / (wheel.name + ".partial")
        shutil.copy2(wheel, partial)
        return partial.rename(target / wheel.name)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="of the environment to install into"
    )
    parser.add_argument("--force", action="store_true", help="build and install again")
    options = parser.parse_args(arguments)
    # Not resolved: the path inside the environment is what tells the environment.
    python = Path(os.path.abspath(options.python))
    names = ["timely-interfaces", *(name.replace("_", "-") for name in PYTHON_PACKAGES)]
    try:
        answer = subprocess.run(
            [str(python), "-c", PROBE, *names], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"build_interfaces: cannot run {python}: {error}\n")
        return 2
    installation = json.loads(answer.stdout)
    state = source_hash(installation["version"])
    stamp = Path(installation["prefix"]) / "share" / "timely_interfaces" / ".source-hash"
    try:
        fresh = (
            not options.force
            and "timely-interfaces" in installation["editable"]
            and stamp.is_file()
            and stamp.read_text() == state
        )
        if not fresh:
            folder = WHEELS / state
            wheels = [] if options.force else list(folder.glob("*.whl"))
            if not wheels:
                print("Building the ROS 2 interfaces (half a minute) ...", flush=True)
                wheels = [build_wheel(uv(python), python, folder)]
            install(python, "--reinstall", str(wheels[0]))
            stamp.write_text(state)
        sources = {name.replace("_", "-"): SOURCES / name for name in PYTHON_PACKAGES}
        stale_paths = [
            path
            for name, path in sources.items()
            if options.force or installation["editable"].get(name) != path.as_uri()
        ]
        if stale_paths:
            editable = [part for path in stale_paths for part in ("-e", str(path))]
            # A plain path in a .pth file: type checkers understand it, and files may come and go.
            plain = ["--config-settings", "editable_mode=compat"]
            install(python, *plain, *editable)
    except Failed as error:
        sys.stderr.write(f"build_interfaces: {error}\n")
        return 1
    print("ROS 2 packages: " + ("in place" if fresh and not stale_paths else "installed"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
