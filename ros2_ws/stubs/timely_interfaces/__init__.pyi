# Written by scripts/generate_ros_stubs.py from the interface files; do not edit.
