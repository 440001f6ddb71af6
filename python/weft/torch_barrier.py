# SPDX-License-Identifier: MIT
"""A barrier by a store of PyTorch's that tells who has not come: monitored_barrier. Messages are as
those of gloo, which programs look for."""
from __future__ import annotations

import enum
from datetime import timedelta
from typing import Any

LONGEST_MS = 2**32 - 1


class Absent(enum.Enum):
    FIRST = "first"  # rank 0 tells of the first that has not come, and waits for no other
    ALL = "all"


def milliseconds(timeout: timedelta) -> int:
    return max(1, min(int(timeout.total_seconds() * 1000), LONGEST_MS))


def meet(store: Any, rank: int, num_ranks: int, timeout: timedelta, longest: timedelta,
         told: Absent) -> None:
    """Rank 0 waits for all others, and tells them how that went. longest: that others wait for
    rank 0, beyond the timeout, which counts if it is negative."""
    timeout = timeout if timeout >= timedelta() else longest
    if rank == 0:
        fault = _find_fault(store, num_ranks, timeout, told)
        store.set("end", fault)
        if fault:
            raise RuntimeError(fault)
        return
    store.set(str(rank), b"")
    try:
        store.wait(["end"], timeout + longest)
        fault = store.get("end").decode()
    except RuntimeError as error:  # a store's timeout
        fault = str(error)
    if fault:
        raise RuntimeError(f"Rank {rank} successfully reached monitoredBarrier, but received "
                           "errors while waiting for send/recv from rank 0. Please check rank 0 "
                           f"logs for faulty rank. It tells: {fault}")


def _find_fault(store: Any, num_ranks: int, timeout: timedelta, told: Absent) -> str:
    """Why not all ranks have met; "" if they have."""
    if timeout <= timedelta():
        return "Rank 0 timed out in monitoredBarrier after 0 ms."
    absent: list[str] = []
    limit = timeout
    for rank in range(1, num_ranks):
        try:
            store.wait([str(rank)], limit)
        except RuntimeError:
            absent.append(str(rank))
            limit = timedelta(milliseconds=1)  # the others had as long
            if told is Absent.FIRST:
                break
    if not absent:
        return ""
    return f"Rank{'s' * (len(absent) > 1)} {', '.join(absent)} failed to pass monitoredBarrier " \
        f"in {milliseconds(timeout)} ms"
