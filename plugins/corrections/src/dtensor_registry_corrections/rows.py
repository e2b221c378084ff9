"""Rows of torch's own rules that are left out."""

from __future__ import annotations

from dtensor_registry import SingleDimStrategy

WITHOUT_WRONG_ROWS: tuple[SingleDimStrategy, ...] = ()
