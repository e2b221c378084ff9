"""Is everything as it should be, and what to do where it is not.

Importing it does not import torch: that torch cannot be used is one of the things to be told.
"""

from dtensor_registry.diagnosis.examination import doctor
from dtensor_registry.diagnosis.findings import Check, Checkup, State

__all__ = ["Check", "Checkup", "State", "doctor"]
