"""Simulated ranks: what each holds, what an op makes of it, and what that adds up to."""
