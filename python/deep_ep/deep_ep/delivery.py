# SPDX-License-Identifier: MIT
"""Rows between the ranks' memory: what dispatch and combine of all versions of DeepEP do the same
way."""
from __future__ import annotations

import math
from typing import Any

import torch
import weft
from weft.agreement import Rows, Terms, refuse
from weft.expert_parallel import ints_at
from weft.torch import Pool

from .arrival import Arrival
from .landing import ALIGNMENT_BYTES, Landing
from .routing import HandlePool, Routing

MAX_ARRAYS = 6  # that one operation puts side by side
BATCHES_IN_POOL = 3  # in use at one time; the pool has room for one more


class Delivery:
    """Part of a buffer."""

    def _open_delivery(self, order: weft.EpOrder, **ep_config: int) -> None:
        self._handles = HandlePool(self._comm, order, **ep_config)
        self._landing = Landing(self._comm)
        self._captured: list[Routing] = []  # which graphs use
        self._refused_bytes = math.inf  # that a pool could not have

    def _close(self) -> None:
        self._handles.close()
        self._landing.close()

    def _owner_of(self, handle: Any) -> Any:
        """The buffer on which operations with the handle run: this one, or another one of the
        group."""
        routing = getattr(handle, "weft", None)
        if not isinstance(routing, Routing):
            raise weft.InvalidArgumentError(
                f"handle is {described(handle)}; it must be what dispatch() returned")
        owner, comm = routing.buffer, self._comm
        rank, num_ranks = owner._comm.rank, owner._comm.num_ranks
        if type(owner) is not type(self) or (rank, num_ranks) != (comm.rank, comm.num_ranks):
            raise weft.InvalidArgumentError(
                f"handle is of another group: of rank {rank} of {num_ranks}, and this "
                f"{type(self).__name__} is of rank {comm.rank} of {comm.num_ranks}")
        if owner.runtime is None:
            raise weft.InvalidArgumentError(
                f"handle is of a {type(owner).__name__} that was destroyed")
        return owner

    def _count(self, routing: Routing, terms: Terms, tag: int, outputs: Pool,
               num_worst_tokens: int) -> weft.abi.EpCounts:
        """Sets the number of rows that come. If the caller bounds it, the host waits for a GPU only
        when memory must grow."""
        if num_worst_tokens:
            routing.num_rows = routing.max_rows = num_worst_tokens
            routing.may_lack_rows = not self._is_capturing()
            if self._comm.is_on_gpu and (self._is_capturing() or
                                         not self._must_grow(routing, outputs)):
                return weft.abi.EpCounts()
        counts = routing.handle.wait_raw_counts()
        if ints_at(counts.tags, self._comm.num_ranks).count(tag) < self._comm.num_ranks:
            if num_worst_tokens and self._comm.is_on_gpu:  # others may not have waited
                raise weft.MismatchError(f"ranks disagree on what they dispatch; this one: {terms}")
            refuse(self._comm, terms)
        if num_worst_tokens:
            return weft.abi.EpCounts()
        routing.num_rows, routing.max_rows = counts.num_recv_tokens, counts.max_recv_tokens
        return counts

    def _look_for_lost_rows(self, routing: Routing) -> None:
        """Every rank knows the largest number of rows of any rank, so all raise the error."""
        if routing.may_lack_rows and not self._is_capturing():
            num_rows = routing.handle.wait_raw_counts().max_recv_tokens
            if num_rows > routing.max_rows:
                raise weft.CapacityError(
                    f"num_worst_tokens was {routing.max_rows}, and {num_rows} rows came to a rank, "
                    "of which some were dropped: it must be that or more")
            routing.may_lack_rows = False

    def _receive(self, arrival: Arrival, outputs: Pool) -> list[torch.Tensor]:
        """Rows arrive in tensors of the pool. If the pool has no room, they arrive in the landing
        block and are copied to ordinary tensors."""
        self._landing.begin()
        if arrival.is_capturing:
            self._keep_for_graphs(arrival.routing)
        wanted = arrival.arrays()
        made = outputs.empty(*wanted, is_capturing=arrival.is_capturing)
        if self._comm.is_direct(made[0]):
            arrival.receive(made)
            return made
        landed = [self._landing.take(*array) for array in wanted]
        arrival.receive(landed)
        for tensor, at in zip(made, landed):
            tensor.copy_(at)
        return made

    @staticmethod
    def _bytes_of(routing: Routing) -> int:
        """The most bytes that one operation takes on any rank."""
        return routing.max_rows * routing.row_bytes + ALIGNMENT_BYTES * MAX_ARRAYS

    def _pool_lacks_room(self, num_bytes: int, outputs: Pool) -> bool:
        return outputs.num_bytes < BATCHES_IN_POOL * num_bytes < self._refused_bytes

    def _must_grow(self, routing: Routing, outputs: Pool) -> bool:
        num_bytes = self._bytes_of(routing)
        return num_bytes > self._landing.num_bytes or self._pool_lacks_room(num_bytes, outputs)

    def _make_room(self, routing: Routing, outputs: Pool) -> None:
        """Grows by the largest number of rows of any rank, so that all ranks grow together. A heap
        without room for a pool may still have room for the landing block."""
        num_bytes = self._bytes_of(routing)
        self._landing.reserve(num_bytes)
        if not self._is_capturing() and self._pool_lacks_room(num_bytes, outputs):
            try:
                outputs.grow(max((BATCHES_IN_POOL + 1) * num_bytes, self._pool_bytes()))
            except weft.OutOfMemoryError:
                self._refused_bytes = BATCHES_IN_POOL * num_bytes

    def _keep_for_graphs(self, routing: Routing) -> None:
        """Keeps the handle and the landing block, which replays use."""
        self._captured.append(routing)
        self._landing.keep()

    def _reached(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that other ranks can read: this one, or a copy of it."""
        return tensor if self._comm.is_direct(tensor) else self._landing.place(tensor)


def described(value: Any) -> str:
    """Text about a wrong argument: its dtype and shape, or its type."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}"
    return f"a {type(value).__name__}"


def planes_of(x: Any) -> tuple[torch.Tensor, ...]:
    """x of dispatch: rows, or rows and scales."""
    planes = x if isinstance(x, tuple) and x else (x,)
    for plane in planes:
        if not isinstance(plane, torch.Tensor) or plane.dim() == 0:
            raise weft.InvalidArgumentError(
                f"x is {described(plane)}; it must be a tensor [tokens, hidden], or two of them, "
                "rows and scales")
    return (planes[0], *(plane.contiguous() for plane in planes[1:]))


def rows_of(planes: tuple[torch.Tensor, ...]) -> tuple[Rows, ...]:
    return tuple(Rows(plane.dtype, tuple(plane.shape[1:])) for plane in planes)
