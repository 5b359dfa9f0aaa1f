"""Starting, watching and stopping the nodes, and the demonstration."""
