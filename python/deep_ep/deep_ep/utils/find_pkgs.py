# SPDX-License-Identifier: MIT
"""Where NVIDIA's packages are: weft needs none of them, so it looks only where it is told."""
from __future__ import annotations

import os


def find_nccl_root(optional: bool = False) -> str | None:
    found = os.environ.get("EP_NCCL_ROOT_DIR") or os.environ.get("NCCL_DIR")
    assert found or optional, "EP_NCCL_ROOT_DIR is not set, and weft's deep_ep needs no NCCL"
    return found
