"""Rules from equations of dims: `notation("b... m k, b... k n -> b... m n", reduce="k")`."""

from dtensor_registry.rules.notation.build import notation
from dtensor_registry.rules.notation.template import Notation

__all__ = ["Notation", "notation"]
