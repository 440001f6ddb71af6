# SPDX-License-Identifier: MIT
"""Settings on which the ranks of a Buffer agree when it is made."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, NamedTuple

import weft

ANSWERS = ("auto", "sums", "rows")
MAX_BYTES = 2**63 - 1


class Settings(NamedTuple):
    """- answers: what low-latency combine sends back, one of ANSWERS
    - enable_shrink: the caller's argument, equal on all ranks
    - pool_bytes: the least size of the pool of outputs, by the environment; the most of all ranks
    - num_nvl_bytes: the most of all ranks
    """

    answers: str
    enable_shrink: bool
    pool_bytes: int
    num_nvl_bytes: int


def of_rank(enable_shrink: Any, num_nvl_bytes: Any, num_rdma_bytes: Any) -> Settings:
    """Reads the constructor's arguments and the environment. An empty variable is not set."""
    for name, value in ("num_nvl_bytes", num_nvl_bytes), ("num_rdma_bytes", num_rdma_bytes):
        if weft.abi.whole(name, value, ctypes.c_int64) < 0:
            raise weft.InvalidArgumentError(f"{name} is {value}; it must be 0 or more")
    answers = os.environ.get("WEFT_DEEP_EP_COMBINE") or ANSWERS[0]
    if answers not in ANSWERS:
        raise weft.InvalidArgumentError(
            f"WEFT_DEEP_EP_COMBINE is {answers!r}; it must be auto, sums or rows")
    pool_bytes = os.environ.get("WEFT_DEEP_EP_POOL_BYTES") or "0"
    if not pool_bytes.isdecimal() or int(pool_bytes) > MAX_BYTES:
        raise weft.InvalidArgumentError(
            f"WEFT_DEEP_EP_POOL_BYTES is {pool_bytes!r}; it must be a number of 0..{MAX_BYTES}")
    return Settings(answers, bool(enable_shrink), int(pool_bytes), int(num_nvl_bytes))


def agree(gather: Callable[[Any], list[Any]], *arguments: Any) -> Settings:
    """Returns the settings of all ranks. arguments are of_rank()'s. A wrong setting on one rank is
    an error on all ranks. Collective."""
    try:
        mine: Any = of_rank(*arguments)
    except (weft.InvalidArgumentError, TypeError) as error:
        mine = error
    everybody = gather(mine)
    if isinstance(mine, Exception):
        raise mine
    for rank, theirs in enumerate(everybody):
        if isinstance(theirs, Exception):
            raise weft.InvalidArgumentError(f"on rank {rank} {theirs}")
        for name, ours, other in (("WEFT_DEEP_EP_COMBINE", mine.answers, theirs.answers),
                                  ("enable_shrink", mine.enable_shrink, theirs.enable_shrink)):
            if ours != other:
                raise weft.MismatchError(
                    f"ranks disagree on {name}: {ours} on this rank, {other} on rank {rank}")
    return mine._replace(pool_bytes=max(each.pool_bytes for each in everybody),
                         num_nvl_bytes=max(each.num_nvl_bytes for each in everybody))
