"""Write the schemas of `doctor` and `new`: python -m tests.diagnosis.write_schemas."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import TypeAdapter

from dtensor_registry.cli.doctor import DoctorReport
from dtensor_registry_kit.commands.new import NewReport

DOCS = Path(__file__).parents[2] / "docs"
REPORTS = {"doctor": DoctorReport, "new": NewReport}

if __name__ == "__main__":
    for name, report in REPORTS.items():
        schema = TypeAdapter(report).json_schema(mode="serialization")
        (DOCS / f"{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n", "utf-8")
