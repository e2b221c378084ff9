"""Pages: one self-contained HTML file for what a feature found."""

from dtensor_registry.pages.render import render, write_page

__all__ = ["render", "write_page"]
