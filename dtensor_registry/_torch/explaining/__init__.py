"""Explanations: a call is dispatched on tensors without data; what decided it is told."""
