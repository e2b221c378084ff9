"""Pages: one HTML file each, with everything that it needs inside."""

from dtensor_registry.cli.pages.explanation import explanation_page
from dtensor_registry.cli.pages.render import render, write_page

__all__ = ["explanation_page", "render", "write_page"]
