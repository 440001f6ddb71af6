# SPDX-License-Identifier: MIT
"""What a dispatch leaves for combine: weft's handle, inside a tuple of DeepEP's shape."""
from __future__ import annotations

from typing import Any

import torch
import weft


class Routing:
    """A handle of weft that is given back to its pool with the last tuple that needs it."""

    def __init__(self, pool: HandlePool, key: tuple[int, int, int], handle: weft.Handle):
        self._pool, self._key, self.handle = pool, key, handle
        self.num_rows = 0  # of this rank
        self.max_rows = 0  # of any rank

    def __del__(self):
        self._pool.give_back(self._key, self.handle)


class HandlePool:
    """Handles by top-k, experts and alignment. A weft_ep serves all numbers of experts up to its
    own; one that needs more makes another weft_ep, on all ranks."""

    def __init__(self, comm: weft.Communicator):
        self._comm = comm
        self._ep: weft.ExpertParallel | None = None
        self._free: dict[tuple[int, int, int], list[weft.Handle]] = {}

    def ep(self, num_experts: int) -> weft.ExpertParallel:
        if self._ep is None or self._ep.num_experts < num_experts:
            self._free.clear()  # those in use keep the old one
            self._ep = weft.ExpertParallel(self._comm, num_experts)
        return self._ep

    def take(self, num_topk: int, num_experts: int, alignment: int) -> Routing:
        ep = self.ep(num_experts)
        key = (num_topk, num_experts, alignment)
        free = self._free.get(key)
        handle = free.pop() if free else ep.handle(num_topk, num_experts=num_experts,
                                                   expert_alignment=alignment)
        return Routing(self, key, handle)

    def give_back(self, key: tuple[int, int, int], handle: weft.Handle) -> None:
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


def intranode_handle(routing: Routing, row_ends: torch.Tensor, src_token: torch.Tensor,
                     is_token_in_rank: torch.Tensor, num_channels: int) -> Handle:
    num_tokens, num_ranks = is_token_in_rank.shape
    zero = row_ends.new_zeros(())
    return Handle.of((
        row_ends.unsqueeze(1).expand(num_ranks, num_ranks), zero.expand(num_ranks, num_channels),
        zero.expand(num_ranks, num_channels), src_token, is_token_in_rank,
        zero.expand(num_tokens, num_ranks)), routing)


def internode_handle(routing: Routing, row_ends: torch.Tensor, is_token_in_rank: torch.Tensor,
                     num_nodes: int, num_channels: int) -> Handle:
    num_tokens, num_ranks = is_token_in_rank.shape
    zero = row_ends.new_zeros(())
    meta = zero.to(torch.uint8).expand(routing.num_rows, 8)
    return Handle.of((
        is_token_in_rank, zero.expand(num_nodes, num_channels),
        zero.expand(num_ranks, num_channels), zero.expand(num_nodes, num_channels),
        zero.expand(num_nodes), zero.expand(num_ranks, num_channels), row_ends, meta,
        zero.expand(num_tokens, num_nodes), zero.expand(0, 8)), routing)
