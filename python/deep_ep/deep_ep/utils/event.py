# SPDX-License-Identifier: MIT
"""Events, by the name of their module in DeepEP V2."""
from ..events import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap"]
