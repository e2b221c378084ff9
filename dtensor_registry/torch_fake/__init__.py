"""A fake environment: ranks that are not there and tensors without memory, to look at calls."""
