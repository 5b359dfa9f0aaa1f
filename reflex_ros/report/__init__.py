"""What a run was: figures, a table for the terminal, a picture. Needs no ROS."""
