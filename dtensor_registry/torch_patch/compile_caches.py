"""torch.compile's caches: compiled code holds decisions, and its keys know nothing of rules.

A second process with other rules would take the first one's graph from disk and compute with
its placements. So what is in force is part of torch's own tag for cache keys, as long as it is.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

import torch.compiler.config

from dtensor_registry.torch_runtime.source_lines import stacklevel

MARK = "|dtensor_registry:"
"""What separates a user's tag from ours."""

_ENTRY = "cache_key_tag"
_torchs: list[Any] = []
"""What torch had as the tag of the whole process, while ours is there."""


class CompiledCodeWarning(UserWarning):
    """Code that was compiled keeps the decisions that were made then."""


def mark(digest: str | None) -> None:
    """Add what is in force to the keys of the caches on disk; replaces the last mark.

    Args:
        digest: hash of the rules in force; None gives torch its own tag back.
    """
    config: Any = torch.compiler.config
    entry = config._config[_ENTRY]
    if digest is None:
        if _torchs:
            entry.env_value_default = _torchs.pop()
    else:
        if not _torchs:
            _torchs.append(entry.env_value_default)
        # A value for every thread, which only the default is: setting it reaches one alone.
        user = _torchs[0] if isinstance(_torchs[0], str) else entry.default
        entry.env_value_default = _marked(user, digest)
    override = entry.user_override.get()
    if isinstance(override, str):
        entry.user_override.set(_marked(override, digest))


def is_compiled() -> bool:
    """Say whether this process has compiled anything since the last reset."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    return getattr(frames, "FRAME_COUNTER", 0) > 0


def drop_compiled() -> None:
    """Have code that was compiled under other rules compiled again."""
    if is_compiled():
        torch.compiler.reset()


def warn_compiled(change: str) -> None:
    """Say that compiled code does not notice a change that is too frequent to drop it for."""
    if is_compiled():
        warnings.warn(
            f"code that torch.compile has compiled does not notice {change}: it keeps the"
            " sharding decisions that it was compiled with.\n"
            "  Compile and call it inside the same block, or call torch.compiler.reset() after"
            " the change.",
            CompiledCodeWarning,
            stacklevel=stacklevel(),
        )


def _marked(tag: str, digest: str | None) -> str:
    own = re.sub(re.escape(MARK) + r"[0-9a-f]*$", "", tag)
    return own if digest is None else f"{own}{MARK}{digest}"
