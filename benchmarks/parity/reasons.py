"""Why something is not the same as on bare torch, by the name of a program or call."""

from __future__ import annotations

REASONS: dict[str, str] = {
    "attention-batch-and-heads": "torch 2.13 has no rule for attention on a CPU",
}
"""The first glob that fits is the reason."""
