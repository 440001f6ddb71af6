# SPDX-License-Identifier: MIT
"""Small helpers that callers of DeepEP import."""
from typing import Any


def value_or(value: Any, default: Any) -> Any:
    return default if value is None else value
