"""Explaining, auditing and checking; each moves to a folder of its own."""

from dtensor_registry import torch_runtime as torch_runtime  # checks this torch first
