"""Installs the robot drivers, under colcon (ament_python) and as an ordinary Python package."""

from setuptools import find_packages, setup

NAME = "timely_robots"

setup(
    name=NAME,
    version="0.1.0",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={f"{NAME}.mujoco": ["*.mjcf"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
    ],
    install_requires=["setuptools"],
    zip_safe=False,
    maintainer="The Timely developers",
    maintainer_email="timely@users.noreply.github.com",
    description="Robot drivers of Timely: lifecycle nodes that execute plan segments.",
    license="Apache-2.0",
    entry_points={
        "console_scripts": ["timely_driver = timely_robots.main:main"],
        # `lrtrace record` finds the drivers by this name, so that it imports nothing of ROS 2.
        "lrtrace.drivers": ["ros2 = timely_robots.standalone:open_standalone_robot"],
    },
)
