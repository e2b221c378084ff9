from typing import Any

import pytest

from dtensor_registry_kit import StrategyConformance

# The rest of torch's rows stays as torch has it, also where the kit asks for more.
LEFT_TO_TORCH = {
    "test_every_row_gives_the_gradients_of_the_whole_run": {
        # Piece by piece a tie between partial extremes is not seen; programs on real ranks have
        # the right gradients.
        "aten.fmax.default": "judged by pieces alone, the gradient of a pending extreme is another",
        "aten.fmin.default": "judged by pieces alone, the gradient of a pending extreme is another",
    },
    "test_the_rule_shards_where_it_could_and_repeats_no_row": {
        "aten.linalg_ldl_solve.default": "torch has no row for right-hand sides without a batch",
    },
}


class TestConformance(StrategyConformance):
    distribution = "dtensor-registry-corrections"

    @pytest.fixture(autouse=True)
    def _expected(self, request: pytest.FixtureRequest, verified: Any) -> None:
        test = getattr(request.node, "originalname", "")
        reason = LEFT_TO_TORCH.get(test, {}).get(verified.op)
        if reason is not None:
            request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
