"""What the host changes inside torch, and the way back: tables, hooks, caches."""

from dtensor_registry import torch_runtime as torch_runtime  # checks this torch first
