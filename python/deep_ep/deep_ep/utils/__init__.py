# SPDX-License-Identifier: MIT
from typing import Any

from ..events import EventHandle, EventOverlap

__all__ = ["EventHandle", "EventOverlap", "check_nvlink_connections"]


def check_nvlink_connections(group: Any) -> None:
    """weft finds out what ranks can reach of each other, and says what they cannot."""
