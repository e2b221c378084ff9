"""Templates to pages. A page asks for nothing from anywhere: styles and script are inside.

`templates/page.html` is what every page extends; `templates/table.html` has the sortable table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dtensor_registry.errors import MissingPackageError, SettingsError

TEMPLATES = Path(__file__).with_name("templates")


def render(template: str, **values: Any) -> str:
    """Fill a template. What is filled in is text: markup in it is shown, not obeyed.

    Args:
        template: name of a file in `templates`.
        values: what the template uses; it is an error to leave one out.

    Raises:
        MissingPackageError: if jinja2 is not installed.

    >>> "<title>A &lt;b&gt;</title>" in render("page.html", title="A <b>", summary="")
    True
    """
    # Here, since only pages need it.
    try:
        import jinja2
    except ImportError as error:
        raise MissingPackageError("jinja2", "pages", "writing a page") from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)


def write_page(file: Path, page: str) -> None:
    """Write a page to a file.

    Raises:
        SettingsError: if the file cannot be written.
    """
    try:
        file.write_text(page, "utf-8")
    except OSError as error:
        raise SettingsError(f"--html {file}: cannot be written: {error.strerror}") from error
