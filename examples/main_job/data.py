"""Real text that the repository ships, as batches of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

REPOSITORY = Path(__file__).resolve().parents[2]
TEXTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "docs/*.md", "examples/*/*.md")


def read_text(repository: Path = REPOSITORY) -> bytes:
    """Join the repository's own prose, in an order that no file system decides.

    Raises:
        FileNotFoundError: if there is none.

    >>> len(read_text()) > 1000
    True
    """
    files = [file for pattern in TEXTS for file in sorted(repository.glob(pattern))]
    if not files:
        raise FileNotFoundError(f"no text to train on: none of {', '.join(TEXTS)} in {repository}")
    return b"\n".join(file.read_bytes() for file in files)


def batches(
    text: bytes, *, steps: int, batch: int, sequence: int, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut random windows out of the text, the same ones for the same seed.

    Yields:
        tokens and targets, both int64 of shape (batch, sequence); a target is the byte that
        follows its token.

    Raises:
        ValueError: if the text is shorter than one window.

    >>> tokens, targets = next(batches(b"abcd", steps=1, batch=1, sequence=3, seed=0))
    >>> tokens.tolist(), targets.tolist()
    ([[97, 98, 99]], [[98, 99, 100]])
    """
    window = sequence + 1
    if len(text) < window:
        raise ValueError(f"a window is {window} bytes, and the text has only {len(text)}")
    codes = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(text) - window + 1, (batch,), generator=generator)
        windows = torch.stack([codes[start : start + window] for start in starts.tolist()])
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
