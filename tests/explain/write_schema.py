"""Write the schema of `explain --json`: python -m tests.explain.write_schema."""

from __future__ import annotations

import json
from pathlib import Path

from dtensor_registry.explanation import ExplanationReport

SCHEMA = Path(__file__).parents[2] / "docs" / "explanation.schema.json"

if __name__ == "__main__":
    schema = ExplanationReport.model_json_schema(mode="serialization")
    SCHEMA.write_text(json.dumps(schema, indent=2) + "\n", "utf-8")
