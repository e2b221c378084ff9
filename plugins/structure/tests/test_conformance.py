from dtensor_registry_kit import StrategyConformance


class TestConformance(StrategyConformance):
    distribution = "dtensor-registry-structure"
    every = 8
