"""Rows of torch's own rules that are left out."""

from __future__ import annotations

from dtensor_registry import SingleDimStrategy, without, wrong_rows

WITHOUT_WRONG_ROWS: tuple[SingleDimStrategy, ...] = (
    SingleDimStrategy(
        "aten.threshold.default", without(wrong_rows("P(max) <- P(max)", because="test"))
    ),
)
