# SPDX-License-Identifier: MIT
"""Some callers take these from DeepEP's C++ module."""
from deep_ep import Config, EventHandle, topk_idx_t

__all__ = ["Config", "EventHandle", "topk_idx_t"]
