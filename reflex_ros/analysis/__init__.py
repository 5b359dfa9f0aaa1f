"""From a recorded run to its figures, stalls, losses and budgets. Pure, no ROS."""
