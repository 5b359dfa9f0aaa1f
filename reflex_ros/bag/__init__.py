"""Rosbag2 files without ROS: written in a thread of their own, read back, repaired."""
