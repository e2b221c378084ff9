"""The table: everything that this plugin contributes.

Each module adds its own strategies to the table:

- `rows`: rows of torch's own rules that are left out, where leaving them out is enough;
- one module for each family that no row can mend (a handler, a full-mesh rule, a decomposition),
  with rules or refusals of its own.
"""

from __future__ import annotations

from dtensor_registry import SingleDimStrategy
from dtensor_registry_corrections.all_dims import ALL_DIMS
from dtensor_registry_corrections.convolution import CONVOLUTIONS
from dtensor_registry_corrections.fills import FILLS
from dtensor_registry_corrections.indexing import INDEXING
from dtensor_registry_corrections.losses import MEANS
from dtensor_registry_corrections.operators import OPERATORS
from dtensor_registry_corrections.reductions import REDUCTIONS
from dtensor_registry_corrections.rows import WITHOUT_WRONG_ROWS
from dtensor_registry_corrections.tolerances import KEYWORDS
from dtensor_registry_corrections.views import VIEWS

STRATEGIES: tuple[SingleDimStrategy, ...] = (
    *ALL_DIMS,
    *CONVOLUTIONS,
    *FILLS,
    *INDEXING,
    *KEYWORDS,
    *MEANS,
    *OPERATORS,
    *REDUCTIONS,
    *VIEWS,
    *WITHOUT_WRONG_ROWS,
)
