"""Write the schemas of `audit`, `lock` and `diff --json`: python -m tests.audit.write_schemas."""

from __future__ import annotations

import json
from pathlib import Path

from dtensor_registry.cli.audit import AuditReport
from dtensor_registry.cli.diff import DiffReport
from dtensor_registry.cli.lock import LockReport

DOCS = Path(__file__).parents[2] / "docs"
REPORTS = {"audit": AuditReport, "diff": DiffReport, "lock": LockReport}

if __name__ == "__main__":
    for name, report in REPORTS.items():
        schema = report.model_json_schema(mode="serialization")
        (DOCS / f"{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n", "utf-8")
