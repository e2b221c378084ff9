"""Ground truth for sharding rules: is a row right, is a rule complete, and what shows it."""
