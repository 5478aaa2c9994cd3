"""Installs the ROS 2 benchmarks, under colcon (ament_python) and as an ordinary Python package."""

from setuptools import find_packages, setup

NAME = "timely_ros_bench"

setup(
    name=NAME,
    version="0.1.0",
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={f"{NAME}.faults": ["*.c", "*.xml"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
    ],
    install_requires=["setuptools"],
    zip_safe=False,
    maintainer="The Timely developers",
    maintainer_email="timely@users.noreply.github.com",
    description="Benchmarks of Timely's ROS 2 side: latency, stop, soak and faults.",
    license="Apache-2.0",
    entry_points={
        "timely.bench": [
            "ros = timely_ros_bench.commands:ros",
            "stop = timely_ros_bench.commands:stop",
            "faults = timely_ros_bench.commands:faults",
            "soak = timely_ros_bench.commands:soak",
        ]
    },
)
