"""The command `dtensor-registry`: it prints what the rest of the package computes."""

from dtensor_registry.cli.command import Command
from dtensor_registry.cli.command_line import main

__all__ = ["Command", "main"]
