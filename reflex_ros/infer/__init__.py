"""Inference on torch: what may be reused between frames and denoise steps, and nothing else."""
