"""The nodes: wiring between topics and stages, nothing else."""
