"""Training of the small policy from simulated demonstrations, on two ordinary cores."""
