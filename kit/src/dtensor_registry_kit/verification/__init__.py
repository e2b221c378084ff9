"""Verify all rules of plugins and of torch, each in a process of its own."""
