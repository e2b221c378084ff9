"""Write the schemas of `audit`, `lock` and `diff --json`: python -m tests.audit.write_schemas."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter

from dtensor_registry.auditing import AuditReport
from dtensor_registry.cli.diff import DiffReport
from dtensor_registry.lock import Lock

DOCS = Path(__file__).parents[2] / "docs"
REPORTS = {"audit": AuditReport, "diff": DiffReport, "lock": Lock}

if __name__ == "__main__":
    for name, report in REPORTS.items():
        schema = TypeAdapter(report).json_schema(mode="serialization")
        (DOCS / f"{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n", "utf-8")
