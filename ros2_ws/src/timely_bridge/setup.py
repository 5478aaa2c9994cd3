"""Installs the bridge, under colcon (ament_python) and as an ordinary Python package."""

from setuptools import find_packages, setup

NAME = "timely_bridge"

setup(
    name=NAME,
    version="0.1.0",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
    ],
    install_requires=["setuptools"],
    zip_safe=False,
    maintainer="The Timely developers",
    maintainer_email="timely@users.noreply.github.com",
    description="ROS 2 bridge of the Timely planning server.",
    license="Apache-2.0",
    entry_points={
        "console_scripts": [
            "timely_bridge = timely_bridge.main:main",
            "timely_fleet = timely_bridge.run_fleet:main",
            "timely_record = timely_bridge.recorder:main",
        ]
    },
)
