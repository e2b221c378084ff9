"""The page of an audit."""

from __future__ import annotations

from typing import Any

from dtensor_registry.auditing.report import AuditReport
from dtensor_registry.pages import render


def audit_page(report: AuditReport) -> str:
    """Write a report as one self-contained HTML page.

    Raises:
        MissingPackageError: if jinja2 is not installed.
    """
    lines = [(op, line) for op in report.ops for line in op.lines]
    return render(
        "audit.html",
        title=f"Audit of {report.program}",
        summary=report.title,
        report=report,
        notes=list(report.notes()),
        op_columns=_headings("op", "calls", "decided by", "moved", "collectives", "bytes"),
        op_rows=[
            {
                "chosen": False,
                "cells": [
                    _cell(op.op),
                    _number(op.calls),
                    _cell(op.decided_by),
                    _cell("; ".join(f"{count:,} x {move}" for move, count in op.moved.items())),
                    _cell(", ".join(f"{n:,} {name}" for name, n in op.collectives.items())),
                    _number(op.bytes, max(op.bytes for op in report.ops)),
                ],
            }
            for op in report.ops
        ],
        line_columns=_headings("line", "op", "calls", "bytes"),
        line_rows=[
            {
                "chosen": False,
                "cells": [
                    _cell(str(line)),
                    _cell(op.op),
                    _number(line.calls),
                    _number(line.bytes, max(line.bytes for _, line in lines)),
                ],
            }
            for op, line in sorted(lines, key=lambda pair: -pair[1].bytes)
        ],
    )


def _headings(*titles: str) -> list[dict[str, Any]]:
    return [{"title": title, "number": title in ("calls", "bytes")} for title in titles]


def _cell(text: str) -> dict[str, Any]:
    return {"text": text, "value": None, "bar": None}


def _number(value: int, most: int = 0) -> dict[str, Any]:
    """Write a number; with what is most of its column, its share of that as a bar."""
    return {"text": f"{value:,}", "value": value, "bar": value / most if most else None}
