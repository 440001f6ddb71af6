# SPDX-License-Identifier: MIT
"""DeepEP's V1 interface on weft: see docs/python.md. Nothing at import touches a GPU."""
from . import ownership

ownership.check(__path__[0])

import torch  # noqa: E402

from .buffer import Buffer  # noqa: E402
from .config import Config  # noqa: E402
from .events import EventHandle, EventOverlap  # noqa: E402

topk_idx_t = torch.int64

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "topk_idx_t"]
