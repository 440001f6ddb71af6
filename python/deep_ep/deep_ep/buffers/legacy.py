# SPDX-License-Identifier: MIT
"""DeepEP V1's Buffer, by the name of its module in V2."""
from ..buffer import Buffer

__all__ = ["Buffer"]
