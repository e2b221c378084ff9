"""The fixtures of the host, also where it is not installed as a pytest plugin."""

from dtensor_registry_kit.pytest_plugin.fixtures import registry, simulated_mesh

__all__ = ["registry", "simulated_mesh"]
