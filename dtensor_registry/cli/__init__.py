"""The command `dtensor-registry`: it prints what the rest of the package computes."""

from dtensor_registry.cli.program import main

__all__ = ["main"]
