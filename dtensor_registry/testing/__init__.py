"""What plugin authors test with: five lines that check every rule, and what they are made of.

    from dtensor_registry.testing import StrategyConformance


    class TestConformance(StrategyConformance):
        distribution = "acme-kernels"

Needs pytest; `pip install 'dtensor-registry[testing]'` brings what else there is to need.
"""

from typing import TYPE_CHECKING, Any

from dtensor_registry.testing.conformance import StrategyConformance

if TYPE_CHECKING:
    from dtensor_registry._torch.checking.installed import check_installed
    from dtensor_registry._torch.checking.local_ranks import simulated_mesh
    from dtensor_registry.verification import check, check_row

__all__ = ["StrategyConformance", "check", "check_installed", "check_row", "simulated_mesh"]


def __getattr__(name: str) -> Any:
    # PEP 562: these need torch, which the pytest plugin of this package must not import.
    if name in ("check", "check_row"):
        from dtensor_registry import verification

        return getattr(verification, name)
    if name == "check_installed":
        from dtensor_registry._torch.checking.installed import check_installed

        return check_installed
    if name == "simulated_mesh":
        from dtensor_registry._torch.checking.local_ranks import simulated_mesh

        return simulated_mesh
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
