"""Fused steps of an action expert: Triton kernels, and the same in plain PyTorch."""
