"""The gate "never worse than torch": bare torch, the registry and one process, side by side."""
