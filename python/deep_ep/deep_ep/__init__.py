# SPDX-License-Identifier: MIT
"""DeepEP's interfaces on weft, of V1, V2, 2.5 and hybrid-ep: see docs/python.md and
docs/deep-ep-v2.md. Nothing at import touches a GPU."""
from . import ownership

ownership.check(__path__[0])

import sys  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from . import utils  # noqa: E402
from .buffer import Buffer  # noqa: E402
from .buffers.copies import BufferAllocator  # noqa: E402
from .buffers.elastic import ElasticBuffer, EPHandle  # noqa: E402
from .buffers.ep import EPBuffer  # noqa: E402
from .config import Config  # noqa: E402
from .events import EventHandle, EventOverlap  # noqa: E402
from .hybrid_ep_buffer import HybridEPBuffer  # noqa: E402
from .utils.envs import get_logical_domain_size, get_physical_domain_size  # noqa: E402

topk_idx_t = torch.int64
__version__ = "2.1.0"  # of DeepEP, whose interface this is

__all__ = ["Buffer", "BufferAllocator", "Config", "EPBuffer", "EPHandle", "ElasticBuffer",
           "EventHandle", "EventOverlap", "HybridEPBuffer", "get_logical_domain_size",
           "get_physical_domain_size", "topk_idx_t", "utils"]

# Classes of DeepEP 2.5.
_NOT_THERE = ("BucketBuffer", "EngramBuffer", "PPBuffer")


def __getattr__(name: str) -> Any:
    """An import of a missing class is an error that names the classes that exist. hasattr() is
    False."""
    if name not in _NOT_THERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    message = (f"deep_ep has no {name}: this is weft's drop-in, with "
               f"{', '.join(name for name in __all__ if name[0].isupper())}")
    asked_by_import = sys._getframe(1).f_code.co_name == "_handle_fromlist"
    raise (ImportError if asked_by_import else AttributeError)(message)
