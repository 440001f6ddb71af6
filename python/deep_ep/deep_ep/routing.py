# SPDX-License-Identifier: MIT
"""What a dispatch leaves for combine: weft's handle, inside a tuple of DeepEP's shape."""
from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
import weft


MIN_TOKENS = 256  # of a handle, so that decoding needs few kinds
Key = tuple[int, int, int, int]


class Routing:
    """A handle of weft that is given back to its pool with the last tuple that needs it."""

    def __init__(self, pool: HandlePool, key: Key, handle: weft.Handle):
        self._pool, self._key, self.handle = pool, key, handle
        self.num_rows = 0  # of this rank
        self.max_rows = 0  # of any rank

    def row_ends(self) -> torch.Tensor:
        """The row after the last one of each source: memory of the handle, so it is true as long
        as this object lives."""
        return self._pool.row_ends(self.handle)

    def __del__(self):
        self._pool.give_back(self._key, self.handle)


class HandlePool:
    """Handles by tokens, top-k, experts and alignment. A weft_ep serves all numbers of experts up
    to its own; one that needs more makes another weft_ep, on all ranks."""

    def __init__(self, comm: weft.Communicator):
        self._comm = comm
        self._has_nodes = any(comm.node(rank) > 0 for rank in range(comm.num_ranks))
        self._ep: weft.ExpertParallel | None = None
        self._free: dict[Key, list[weft.Handle]] = {}
        self._row_ends: WeakKeyDictionary[weft.Handle, torch.Tensor] = WeakKeyDictionary()

    def row_ends(self, handle: weft.Handle) -> torch.Tensor:
        """A view of memory of the handle, made once."""
        if handle not in self._row_ends:
            num_local_experts = handle.num_experts // self._comm.num_ranks
            self._row_ends[handle] = handle.device_counts(
                num_local_experts, torch.empty(0)).recv_rank_ends
        return self._row_ends[handle]

    def close(self) -> None:
        """Views keep the communicator, which is to end."""
        self._free.clear()
        self._row_ends.clear()

    def ep(self, num_experts: int) -> weft.ExpertParallel:
        if self._ep is None or self._ep.num_experts < num_experts:
            self._free.clear()  # those in use keep the old one
            self._ep = weft.ExpertParallel(self._comm, num_experts)
        return self._ep

    def take(self, num_tokens: int, num_topk: int, num_experts: int, alignment: int) -> Routing:
        ep = self.ep(num_experts)
        key = (self._max_tokens(num_tokens), num_topk, num_experts, alignment)
        free = self._free.get(key)
        handle = free.pop() if free else ep.handle(num_topk, max_tokens=key[0],
                                                   num_experts=num_experts,
                                                   expert_alignment=alignment)
        return Routing(self, key, handle)

    def _max_tokens(self, num_tokens: int) -> int:
        """Powers of two, so that batches share handles; graphs need a bound. Between nodes ranks
        would have to agree on it, so handles grow there."""
        if self._has_nodes:
            return 0
        return max(MIN_TOKENS, 1 << (num_tokens - 1).bit_length())

    def give_back(self, key: Key, handle: weft.Handle) -> None:
        if handle.ep is self._ep:
            self._free.setdefault(key, []).append(handle)


class Handle(tuple):
    """DeepEP's elements; what only its own kernels read has the right shape and zeros."""

    weft: Any

    @classmethod
    def of(cls, elements: tuple[Any, ...], routing: Any) -> Handle:
        handle = cls(elements)
        handle.weft = routing
        return handle


class Placeholders:
    """Zeros of any shape, in the same memory: what only DeepEP's own kernels read."""

    def __init__(self, device: torch.device):
        self._zero = torch.zeros((), dtype=torch.int32, device=device)
        self._made: dict[tuple[int, ...], torch.Tensor] = {}

    def of(self, *shape: int) -> torch.Tensor:
        """Shapes that come again and again."""
        if shape not in self._made:
            self._made[shape] = self._zero.expand(shape)
        return self._made[shape]

    def of_batch(self, *shape: int) -> torch.Tensor:
        return self._zero.expand(shape)


def intranode_handle(routing: Routing, row_ends: torch.Tensor, src_token: torch.Tensor,
                     is_token_in_rank: torch.Tensor, num_channels: int,
                     zeros: Placeholders) -> Handle:
    num_tokens, num_ranks = is_token_in_rank.shape
    channels = zeros.of(num_ranks, num_channels)
    return Handle.of((
        row_ends.unsqueeze(1).expand(num_ranks, num_ranks), channels, channels, src_token,
        is_token_in_rank, zeros.of_batch(num_tokens, num_ranks)), routing)


def internode_handle(routing: Routing, row_ends: torch.Tensor, is_token_in_rank: torch.Tensor,
                     num_nodes: int, num_channels: int, zeros: Placeholders) -> Handle:
    num_tokens, num_ranks = is_token_in_rank.shape
    by_node, by_rank = zeros.of(num_nodes, num_channels), zeros.of(num_ranks, num_channels)
    meta = zeros.of().to(torch.uint8).expand(routing.num_rows, 8)
    return Handle.of((
        is_token_in_rank, by_node, by_rank, by_node, zeros.of(num_nodes), by_rank, row_ends, meta,
        zeros.of_batch(num_tokens, num_nodes), zeros.of(0, 8)), routing)
