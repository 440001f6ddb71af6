# SPDX-License-Identifier: MIT
"""Redundant experts of DeepEP 2.5, for the ranks of a node: weights go to copies on other ranks,
and gradients of copies come back."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import weft

from ..delivery import described
from ..events import EventHandle, EventOverlap, without_modes
from ..utils.math import align

ALIGNMENT = 256  # of tensors of a plan; sizes are multiples


class BufferAllocator:
    """Tensors that are planned before their memory is there."""

    def __init__(self) -> None:
        self.alignment = ALIGNMENT
        self.allocations: list[tuple[torch.Tensor, int]] = []
        self.num_bytes = 0
        self.materialized = False

    def allocate(self, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        """A tensor without memory, which materialize() gives it."""
        assert not self.materialized, "the plan has its memory"
        tensor = torch.empty(shape, dtype=dtype, device="meta")
        self.allocations.append((tensor, self.num_bytes))
        self.num_bytes += align(tensor.nbytes, self.alignment)
        return tensor

    def materialize(self, storage: torch.Tensor) -> None:
        assert not self.materialized, "the plan has its memory"
        assert storage.dtype == torch.uint8 and storage.numel() == self.num_bytes
        for tensor, offset in self.allocations:
            placed = storage[offset:offset + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            torch.utils.swap_tensors(tensor, placed)
        self.materialized = True


def plan_and_bytes(given: Any) -> tuple[BufferAllocator | None, int]:
    """The plan, if lb_allocation_plan_or_num_bytes is one, and its number of bytes."""
    plan = given if isinstance(given, BufferAllocator) else None
    num_bytes = plan.num_bytes if plan is not None else 0 if given is None else given
    if not isinstance(num_bytes, int) or num_bytes < 0:
        raise weft.InvalidArgumentError(
            f"lb_allocation_plan_or_num_bytes is {given!r}; it must be a BufferAllocator or a "
            "number of bytes")
    assert plan is None or not plan.materialized, "the plan has its memory"
    return plan, num_bytes


class ExpertCopies:
    """Part of EPBuffer. Ranks of redundancy_mapping, and its experts, are those of the node."""

    _comm: weft.Communicator
    num_lb_bytes: int
    num_nvlink_ranks: int
    rank_idx: int
    runtime: Any

    def _open_copies(self, plan: BufferAllocator | None) -> None:
        """Collective."""
        self.runtime.lb_storage = self._comm.heap_empty(self.num_lb_bytes, torch.uint8) \
            if self.num_lb_bytes else torch.empty(0, dtype=torch.uint8)
        if self.num_lb_bytes:
            self._look_at_node()
        if plan is not None:
            plan.materialize(self.runtime.lb_storage)

    def _look_at_node(self) -> None:
        """Refuses, on all ranks, memory that is not mapped on all of its node. Collective."""
        first = self.rank_idx - self.rank_idx % self.num_nvlink_ranks
        missing = [rank for rank in range(first, first + self.num_nvlink_ranks)
                   if self._comm.on_rank(self.runtime.lb_storage, rank) is None]
        found = self._comm.host_all_gather(b"%8d" % (missing[0] if missing else -1))
        for rank, other in enumerate(map(int, found)):
            if other >= 0:
                self._leave()
                raise weft.UnsupportedError(f"the memory of rank {other} cannot be mapped on rank "
                                            f"{rank}, as redundant experts need it")

    def lb_get_theoretical_num_sms(self) -> int:
        """Copies run on as many as PyTorch's copies take."""
        return 2

    @torch.no_grad()
    @without_modes
    def lb_prefetch_weights(self, redundant_expert_weights: Any, expert_weights: Any,
                            redundancy_mapping: torch.Tensor, num_sms: int = 0,
                            previous_event: Any = None) -> EventOverlap:
        """Writes rows of this rank's experts to the copies that other ranks have of them."""
        copies, owned = _listed(redundant_expert_weights), _listed(expert_weights)
        if len(copies) != len(owned) or not owned:
            raise weft.InvalidArgumentError(
                f"redundant_expert_weights has {len(copies)} tensors, expert_weights {len(owned)}; "
                "they must have as many, and one or more")
        for copy, own in zip(copies, owned):
            self._look_at_pair(copy, own, redundancy_mapping)
        num_rows = [len(own) for own in owned]
        if len(set(num_rows)) > 1:
            raise weft.InvalidArgumentError(
                f"expert_weights have {num_rows} rows; they must have as many as each other")
        _wait_for(previous_event)
        pairs = [(self._comm.on_rank(copy, rank)[slot], own[local])
                 for rank, slot, local in self._places(redundancy_mapping, num_rows[0])
                 for copy, own in zip(copies, owned)]
        self._comm.barrier()  # nobody uses what the copies were
        for theirs, mine in pairs:
            theirs.view(-1).view(torch.uint8).copy_(mine.view(-1).view(torch.uint8))
        self._comm.barrier()
        return EventOverlap(EventHandle())

    @torch.no_grad()
    @without_modes
    def lb_reduce_grads(self, redundant_expert_grads: torch.Tensor, expert_grads: torch.Tensor,
                        redundancy_mapping: torch.Tensor, num_sms: int = 0,
                        previous_event: Any = None) -> EventOverlap:
        """Adds the gradients of copies to expert_grads, in the order of ranks and slots."""
        self._look_at_pair(redundant_expert_grads, expert_grads, redundancy_mapping)
        for given in (redundant_expert_grads, expert_grads):
            if given.dtype != torch.float32 or given.dim() != 2:
                raise weft.InvalidArgumentError(f"{described(given)} must be float32, of 2 "
                                                "dimensions")
        _wait_for(previous_event)
        pairs = [(self._comm.on_rank(redundant_expert_grads, rank)[slot], expert_grads[local])
                 for rank, slot, local in self._places(redundancy_mapping, len(expert_grads))]
        self._comm.barrier()  # all gradients are there
        for theirs, mine in pairs:
            mine += theirs
        self._comm.barrier()
        return EventOverlap(EventHandle())

    def _places(self, mapping: torch.Tensor, num_local: int) -> list[tuple[int, int, int]]:
        """The rank and the slot of each copy of this rank's experts, and their local ids. The host
        waits for the mapping."""
        num_ranks = self.num_nvlink_ranks
        if mapping.dtype != torch.int32 or mapping.dim() != 2 or len(mapping) != num_ranks:
            raise weft.InvalidArgumentError(
                f"redundancy_mapping is {described(mapping)}; it must be int32, [{num_ranks}, "
                "slots]")
        listed = mapping.tolist()
        for row in listed:
            for expert in row:
                if not -1 <= expert < num_ranks * num_local:
                    raise weft.InvalidArgumentError(
                        f"redundancy_mapping has {expert}, allowed are -1.."
                        f"{num_ranks * num_local - 1}")
        node, rank = divmod(self.rank_idx, num_ranks)
        return [(node * num_ranks + other, slot, expert % num_local)
                for other, row in enumerate(listed) for slot, expert in enumerate(row)
                if expert >= 0 and expert // num_local == rank]

    def _look_at_pair(self, copy: torch.Tensor, own: torch.Tensor, mapping: torch.Tensor) -> None:
        for given in (copy, own):
            if not given.is_contiguous() or given.dim() < 1 or not len(given):
                raise weft.InvalidArgumentError(f"{described(given)} must be contiguous, of 1 "
                                                "dimension or more, with a row or more")
        if not self.num_lb_bytes or self._comm.on_rank(copy, self.rank_idx) is None:
            raise weft.InvalidArgumentError(
                f"{described(copy)} must be in memory that lb_allocation_plan_or_num_bytes "
                "asked for")
        if len(copy) != mapping.shape[-1]:
            raise weft.InvalidArgumentError(
                f"{described(copy)} must have {mapping.shape[-1]} rows, as many as "
                "redundancy_mapping has slots")
        if copy.dtype != own.dtype or _row_bytes(copy) != _row_bytes(own):
            raise weft.InvalidArgumentError(f"rows of {described(copy)} and {described(own)} must "
                                            "have one type and as many bytes")


def _wait_for(event: Any) -> None:
    if event is not None:
        event.current_stream_wait()


def _listed(given: Any) -> Sequence[torch.Tensor]:
    return [given] if isinstance(given, torch.Tensor) else list(given)


def _row_bytes(tensor: torch.Tensor) -> int:
    return math.prod(tensor.shape[1:]) * tensor.itemsize
