"""Calls of an op to try a rule with: the author's, torch's own, or generated from the schema."""
