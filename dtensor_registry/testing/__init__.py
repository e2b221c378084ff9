"""What plugin authors test with: five lines that check every rule, and what they are made of.

    from dtensor_registry.testing import StrategyConformance


    class TestConformance(StrategyConformance):
        distribution = "acme-kernels"

Needs pytest; `pip install 'dtensor-registry[testing]'` brings what else there is to need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dtensor_registry.testing.conformance import StrategyConformance

if TYPE_CHECKING:
    from dtensor_registry._torch.checking.installed import check_installed
    from dtensor_registry._torch.checking.local_ranks import simulated_mesh
    from dtensor_registry._torch.checking.torch_rules import torch_rows
    from dtensor_registry.torch_runtime.ops import overloads
    from dtensor_registry.verification import check, check_row

_HOMES = {
    "check": "verification",
    "check_installed": "_torch.checking.installed",
    "check_row": "verification",
    "overloads": "_torch.catalog",
    "simulated_mesh": "_torch.checking.local_ranks",
    "torch_rows": "_torch.checking.torch_rules",
}
"""Where names are from that need torch, which the pytest plugin of this package must not import."""

__all__ = [
    "StrategyConformance",
    "check",
    "check_installed",
    "check_row",
    "overloads",
    "simulated_mesh",
    "torch_rows",
]


def __getattr__(name: str) -> Any:
    # PEP 562
    if name in _HOMES:
        return getattr(import_module(f"dtensor_registry.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
