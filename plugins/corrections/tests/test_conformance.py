from dtensor_registry.testing import StrategyConformance


class TestConformance(StrategyConformance):
    distribution = "dtensor-registry-corrections"
