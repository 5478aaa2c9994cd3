"""Builds the rosidl package with CMake and packs the result as a wheel; colcon builds the same CMakeLists.txt itself.

The generated Python package goes into the wheel as it is. The type support libraries and the ament index go into the
wheel's data files. They land in the environment's ``lib/`` and ``share/``, as those of rclpy's own wheels do.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from distutils.command.install_data import install_data  # setuptools' own copy, there once it is imported
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
NAME = "timely_interfaces"
LIMIT_S = 900


def run_cmake(build: Path, install: Path) -> None:
    """Configure, build and install the package into ``install`` with the tools of this environment."""
    if shutil.which("cc") is None and shutil.which("gcc") is None and "CC" not in os.environ:
        raise SystemExit("building timely_interfaces needs a C compiler: apt-get install build-essential")
    prefix = Path(sys.prefix)
    environment = dict(os.environ)
    environment["AMENT_PREFIX_PATH"] = str(prefix)
    environment["CMAKE_PREFIX_PATH"] = str(prefix)
    environment["PATH"] = os.pathsep.join([str(prefix / "bin"), environment.get("PATH", "")])
    configure = [
        "cmake", "-S", str(HERE), "-B", str(build), "-G", "Ninja",
        f"-DCMAKE_INSTALL_PREFIX={install}", f"-DCMAKE_PREFIX_PATH={prefix}",
        "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_TESTING=OFF", "-Wno-dev",
        f"-DPython3_EXECUTABLE={sys.executable}",
        f"-DPython3_INCLUDE_DIR={sysconfig.get_path('include')}",
        f"-DCMAKE_PROJECT_INCLUDE={HERE / 'wheel' / 'drop_foreign_includes.cmake'}",
    ]  # fmt: skip
    for command in (configure, ["cmake", "--build", str(build)], ["cmake", "--install", str(build)]):
        subprocess.run(command, check=True, env=environment, timeout=LIMIT_S)


class BuildInterfaces(build_py):
    """``build_py`` that generates the package it packs."""

    def run(self) -> None:
        """Generate, then copy the Python package into the build folder."""
        scratch = Path(self.get_finalized_command("build").build_temp).resolve()
        install = scratch / "prefix"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        run_cmake(scratch / "cmake", install)
        package = next(path.parent for path in install.rglob(f"{NAME}/__init__.py"))
        target = Path(self.build_lib) / NAME
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(package, target, ignore=shutil.ignore_patterns("__pycache__"))
        self.distribution.data_files = data_files(install)


def data_files(install: Path) -> list[tuple[str, list[str]]]:
    """Shared libraries and ``share/`` of the installed package as setuptools data files."""
    files: dict[str, list[str]] = {"lib": [str(path) for path in sorted((install / "lib").glob("*.so"))]}
    for path in sorted((install / "share").rglob("*")):
        if path.is_file():
            files.setdefault(str(path.parent.relative_to(install)), []).append(str(path))
    return list(files.items())


class InstallData(install_data):
    """``install_data`` that looks at the data files after the build has found them."""

    def finalize_options(self) -> None:
        """Build first: the list of data files does not exist before."""
        super().finalize_options()
        self.run_command("build_py")
        self.data_files = self.distribution.data_files or []


class BinaryDistribution(Distribution):
    """A distribution with compiled parts: its wheel is for one Python and one machine."""

    def has_pure_modules(self) -> bool:
        """Yes: without it ``build`` would leave ``build_py`` out, because no package is there before it ran."""
        return True

    def has_ext_modules(self) -> bool:
        """Yes: the type supports are extension modules."""
        return True


setup(
    distclass=BinaryDistribution,
    cmdclass={"build_py": BuildInterfaces, "install_data": InstallData},
    data_files=[("share", [])],
)
