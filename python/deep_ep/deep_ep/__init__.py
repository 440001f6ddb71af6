# SPDX-License-Identifier: MIT
"""DeepEP's V1 interface on weft: see docs/python.md. Nothing at import touches a GPU."""
import torch

from .buffer import Buffer
from .config import Config
from .events import EventHandle, EventOverlap

topk_idx_t = torch.int64

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "topk_idx_t"]
