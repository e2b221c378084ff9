"""What a table of this plugin consists of: ops that share a rule, and the reason for it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from dtensor_registry import SchemaInfo, SingleDimStrategy


@dataclass(frozen=True, slots=True)
class Family:
    """Ops with one rule.

    Attributes:
        identity: why partial sums pass in these ops, or why they do not, as mathematics.
        strategy: the ops and their rule.
    """

    identity: str
    strategy: SingleDimStrategy


claim = partial(
    SingleDimStrategy,
    schema_info=SchemaInfo(
        # A number may stand where the schema has a tensor, and rows depend on it.
        static_argnum=0,
        # All keyword-only arguments that are no tensors, but `alpha` and `value`: those scale a
        # term, so they change neither rows nor shapes nor dtypes, and optimizers change them
        # at every step.
        static_kwargkey=("approximate", "decimals", "memory_format", "rounding_mode"),
    ),
    # A rank that holds nothing has nothing to compute.
    allow_uneven_sharding=True,
    # Sizes that are known at run time only are checked by torch when it broadcasts.
    allow_unbacked_sharding=True,
)
"""Build the strategy of a family: `claim(ops, rule)`."""
