# SPDX-License-Identifier: MIT
"""DeepEP's V1 interface on weft: see docs/python.md. Nothing at import touches a GPU."""
from . import ownership

ownership.check(__path__[0])

import sys  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from . import utils  # noqa: E402
from .buffer import Buffer  # noqa: E402
from .config import Config  # noqa: E402
from .events import EventHandle, EventOverlap  # noqa: E402

topk_idx_t = torch.int64

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "topk_idx_t", "utils"]

# Classes of DeepEP 2 and its branches.
_NOT_THERE = ("ElasticBuffer", "EPBuffer", "EPHandle", "HybridEPBuffer")


def __getattr__(name: str) -> Any:
    """An import of a missing class is an error that names the classes that exist. hasattr() is
    False."""
    if name not in _NOT_THERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = (f"deep_ep has no {name}: this is weft's drop-in for DeepEP V1, with "
               f"{', '.join(__all__[:4])}; DeepEP V2 and hybrid EP are not there yet")
    asked_by_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
    raise (ImportError if asked_by_import else AttributeError)(message)
