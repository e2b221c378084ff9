from dtensor_registry_kit import StrategyConformance


class TestConformance(StrategyConformance):
    distribution = "acme-kernels"
