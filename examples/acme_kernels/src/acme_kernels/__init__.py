"""Fused transformer kernels of an imaginary vendor; importing the package registers the ops."""

from acme_kernels.ops import rms_norm, rms_norm_backward, swiglu, swiglu_backward

__all__ = ["rms_norm", "rms_norm_backward", "swiglu", "swiglu_backward"]
