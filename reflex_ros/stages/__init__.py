"""Stages of the suite (encoder, policy, bridge) and the wirings that need no ROS."""
