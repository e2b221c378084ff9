"""A small byte-level decoder-only transformer, built on the vendor's fused ops.

The module knows nothing of DTensor: it runs on plain tensors and on sharded ones as it is.
In the shapes, B is the batch, T the sequence, D the model width, H the hidden width of the
feed-forward part and V = 256 the number of bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from acme_kernels import rms_norm, swiglu

BYTES = 256


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The sizes that decide the shapes of all parameters."""

    layers: int = 2
    width: int = 64
    heads: int = 4
    hidden: int = 160
    sequence: int = 64


class RMSNorm(nn.Module):
    """The vendor's `acme::rms_norm` with its weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        y: Tensor = rms_norm(x, self.weight, 1e-5)[0]
        return y


class Attention(nn.Module):
    """Causal self-attention by torch's fused kernel."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.head_width = size.width // size.heads
        self.query = nn.Linear(size.width, size.width, bias=False)
        self.key = nn.Linear(size.width, size.width, bias=False)
        self.value = nn.Linear(size.width, size.width, bias=False)
        self.output = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        query, key, value = (
            self._split_heads(project(x)) for project in (self.query, self.key, self.value)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return joined

    def _split_heads(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, heads, T, D / heads)."""
        return x.view(*x.shape[:2], -1, self.head_width).transpose(1, 2)


class FeedForward(nn.Module):
    """Two projections up, the vendor's `acme::swiglu` of both, one projection down."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        y: Tensor = self.down(swiglu(self.gate(x), self.up(x)))
        return y


class Block(nn.Module):
    """Attention and feed-forward, each normalised before and added to the residual stream.

    What attention adds goes through `mish` first, a smooth function that lets little of what is
    negative pass. (A function with a kink would turn rounding into a gradient of another piece.)
    """

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(size.width)
        self.attention = Attention(size)
        self.feed_forward_norm = RMSNorm(size.width)
        self.feed_forward = FeedForward(size)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = x + functional.mish(self.attention(self.attention_norm(x)))
        y: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return y


class Transformer(nn.Module):
    """Predicts every next byte; the forward pass ends in the loss."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        self.embedding = nn.Embedding(BYTES, size.width)
        self.position = nn.Parameter(0.02 * torch.randn(size.sequence, size.width))
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = RMSNorm(size.width)
        self.head = nn.Linear(size.width, BYTES, bias=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of the bytes in nats.

        Args:
            tokens: (B, T) integers below V.
            targets: (B, T), the byte that follows each token.
        """
        logits = self.logits(tokens)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def logits(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, V)."""
        x = self.embedding(tokens) + self.position
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


def seeded_model(size: ModelSize, seed: int) -> Transformer:
    """Build the model with weights that depend on `seed` alone, so that every rank agrees.

    >>> a, b = (seeded_model(ModelSize(layers=1), 7) for _ in range(2))
    >>> torch.equal(a.head.weight, b.head.weight)
    True
    """
    torch.manual_seed(seed)
    return Transformer(size)
