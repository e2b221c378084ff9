"""What it takes to check rules against ground truth: subjects, sample calls, and who runs it."""
