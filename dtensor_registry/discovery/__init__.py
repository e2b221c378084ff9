"""From installed distributions to what their plugins contribute."""

from dtensor_registry.discovery.collect import PluginWarning, discover, list_plugins
from dtensor_registry.discovery.settings_check import is_disabled_for, is_required, may_override
from dtensor_registry.discovery.values import (
    LOCAL,
    PROGRAM,
    Contribution,
    Discovery,
    Fallback,
    Origin,
    Plugin,
)

__all__ = [
    "LOCAL",
    "PROGRAM",
    "Contribution",
    "Discovery",
    "Fallback",
    "Origin",
    "Plugin",
    "PluginWarning",
    "discover",
    "is_disabled_for",
    "is_required",
    "list_plugins",
    "may_override",
]
