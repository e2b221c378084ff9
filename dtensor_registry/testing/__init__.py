"""What plugin authors test with: five lines that check every rule, and fixtures.

    from dtensor_registry.testing import StrategyConformance


    class TestConformance(StrategyConformance):
        distribution = "acme-kernels"

Needs pytest; `pip install 'dtensor-registry[testing]'` brings what else there is to need.
"""

from dtensor_registry.testing.conformance import StrategyConformance

__all__ = ["StrategyConformance"]
