"""The only code that touches torch's private API.

Importing it checks that this torch has what the host needs; see `surface`.
"""

from dtensor_registry.torch_runtime.compat import check_surface

check_surface()
