"""Derive the rule of a fused op from plain PyTorch that computes the same."""
