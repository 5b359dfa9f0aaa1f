"""The simulated PiPer: scene, physics, cameras, tasks, experts and its CAN bus."""
