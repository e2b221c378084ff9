"""Judge rules by what their ops compute: is a row right, is a rule complete, and what shows it."""
