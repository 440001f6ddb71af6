# SPDX-License-Identifier: MIT
"""DeepEP's normal functions: layout, dispatch and combine."""
from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
import weft
from weft import arrays
from weft.agreement import Rows, Terms, refuse, tag_of
from weft.expert_parallel import ints_at
from weft.torch import Pool

from .arrival import Arrival
from .config import RANKS_PER_NODE, Config, num_nodes_of
from .events import without_modes
from .landing import ALIGNMENT_BYTES, Landing
from .routing import (Handle, HandlePool, Placeholders, Routing, internode_handle,
                      intranode_handle)

MAX_RANKS_WITHOUT_TOPK = 64  # that one token goes to
MAX_ARRAYS = 6  # that one operation puts side by side
BATCHES_IN_POOL = 3  # in use at one time; the pool has room for one more


class NormalFunctions:
    """Part of Buffer."""

    def _open_normal(self) -> None:
        self._handles, self._landing = HandlePool(self._comm), Landing(self._comm)
        self._placeholders = Placeholders(self._device())
        self._captured: list[Routing] = []  # which graphs use
        self._refused_bytes = math.inf  # that a pool could not have

    def _close_normal(self) -> None:
        self._handles.close()
        self._landing.close()

    @without_modes
    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int,
                            previous_event: Any = None, async_finish: bool = False,
                            allocate_on_comm_stream: bool = False) -> tuple[Any, ...]:
        _look_at_choices(topk_idx)

        def layout(_: Pool) -> tuple[Any, Any]:
            routing = self._handles.take(self, *topk_idx.shape, num_experts, 1)
            if self._is_capturing():
                self._captured.append(routing)
            tables = routing.handle.layout(topk_idx, with_tables=True)
            is_token_in_rank = tables.is_token_in_rank.view(torch.bool)
            made = (tables.num_tokens_per_rank, self._tokens_per_node(is_token_in_rank),
                    tables.num_tokens_per_expert, is_token_in_rank)
            return made, made

        outputs, event = self._run(layout, topk_idx, previous_event, async_finish)
        return *outputs, event

    def _tokens_per_node(self, is_token_in_rank: torch.Tensor) -> torch.Tensor | None:
        """Tokens for each of DeepEP's nodes; None if the group has only one."""
        if self.group_size <= RANKS_PER_NODE:
            return None
        num_nodes = num_nodes_of(self.group_size)
        num_absent = num_nodes * RANKS_PER_NODE - self.group_size
        by_node = torch.nn.functional.pad(is_token_in_rank, (0, num_absent)).view(
            -1, num_nodes, RANKS_PER_NODE)
        return by_node.any(2).sum(0, dtype=torch.int32)

    @without_modes
    def dispatch(self, x: Any, handle: Handle | None = None,
                 num_tokens_per_rank: torch.Tensor | None = None,
                 num_tokens_per_rdma_rank: torch.Tensor | None = None,
                 is_token_in_rank: torch.Tensor | None = None,
                 num_tokens_per_expert: torch.Tensor | None = None,
                 topk_idx: torch.Tensor | None = None, topk_weights: torch.Tensor | None = None,
                 expert_alignment: int = 1, num_worst_tokens: int = 0,
                 config: Config | None = None, previous_event: Any = None,
                 async_finish: bool = False,
                 allocate_on_comm_stream: bool = False) -> tuple[Any, ...]:
        if handle is not None and self._owner_of(handle) is not self:
            return self._owner_of(handle).dispatch(
                x, handle, topk_idx=topk_idx, topk_weights=topk_weights, config=config,
                previous_event=previous_event, async_finish=async_finish)
        planes = _planes_of(x)
        num_blocks = self._num_blocks(config)
        num_worst_tokens = weft.abi.whole("num_worst_tokens", num_worst_tokens, ctypes.c_int32)
        if num_worst_tokens < 0:
            raise weft.InvalidArgumentError(
                f"num_worst_tokens is {num_worst_tokens}; it must be 0 or more")

        def arrival_of(routing: Routing, *, with_src_token: bool) -> Arrival:
            return Arrival(routing, planes, topk_idx, topk_weights, with_src_token=with_src_token,
                           num_blocks=num_blocks, is_capturing=self._is_capturing())

        def cached(outputs: Pool) -> tuple[Any, Any]:
            routing = handle.weft
            arrival = arrival_of(routing, with_src_token=False)
            if arrival.row_bytes > routing.row_bytes:
                raise weft.InvalidArgumentError(
                    f"x is {_rows_of(planes)}; its first dispatch was {routing.like}, which leaves "
                    f"room for {routing.row_bytes} bytes a token")
            self._look_for_lost_rows(routing)
            made = self._receive(arrival, outputs)
            return (tuple(made) if isinstance(x, tuple) else made[0], None, None, None, None), made

        def routed(outputs: Pool) -> tuple[Any, Any]:
            num_topk = min(self.group_size, MAX_RANKS_WITHOUT_TOPK) if topk_idx is None \
                else topk_idx.shape[1]
            routing = self._handles.take(self, arrays.num_rows(is_token_in_rank), num_topk,
                                         num_tokens_per_expert.numel(), expert_alignment)
            like = _rows_of(planes)
            terms = (("x", like), ("topk_idx", topk_idx is not None and topk_idx.dtype),
                     ("num_worst_tokens", num_worst_tokens),
                     ("bytes of pools", (self._landing.num_bytes, outputs.num_bytes)))
            tag = tag_of(terms)
            self._lay_out(routing, is_token_in_rank, num_tokens_per_expert, tag)
            arrival = arrival_of(routing, with_src_token=True)
            routing.set_room(like, arrival.row_bytes)
            routing.handle.notify()
            counts = self._count(routing, terms, tag, outputs, num_worst_tokens)
            self._make_room(routing, outputs)
            made = self._receive(arrival, outputs)
            *received, src_token = made
            if topk_idx is None:
                received += [None, None]
            *rows, recv_topk_idx, recv_topk_weights = received
            per_expert = ints_at(counts.num_recv_per_expert, counts.num_local_experts)
            return ((tuple(rows) if isinstance(x, tuple) else rows[0], recv_topk_idx,
                     recv_topk_weights, per_expert,
                     self._handle(routing, src_token, is_token_in_rank, config)), made)

        if handle is not None:
            assert topk_idx is None and topk_weights is None, "a handle comes without top-k"
        else:
            assert is_token_in_rank is not None and num_tokens_per_expert is not None
            if not isinstance(num_tokens_per_expert, torch.Tensor):
                raise weft.InvalidArgumentError(
                    f"num_tokens_per_expert is {_described(num_tokens_per_expert)}; it must be a "
                    "tensor")
            assert (topk_idx is None) == (topk_weights is None), "both of top-k, or none"
            if topk_idx is not None:
                _look_at_choices(topk_idx)
            assert num_worst_tokens == 0 or topk_idx is not None, "num_worst_tokens needs top-k"
        outputs, event = self._run(routed if handle is None else cached,
                                   (x, topk_idx, topk_weights, is_token_in_rank,
                                    num_tokens_per_expert), previous_event, async_finish)
        return *outputs, event

    def _owner_of(self, handle: Any) -> Any:
        """The Buffer on which operations with the handle run: this one, or another one of the
        group."""
        routing = getattr(handle, "weft", None)
        if not isinstance(routing, Routing):
            raise weft.InvalidArgumentError(
                f"handle is {_described(handle)}; it must be what dispatch() returned")
        owner = routing.buffer
        if (owner.rank, owner.group_size) != (self.rank, self.group_size):
            raise weft.InvalidArgumentError(
                f"handle is of another group: of rank {owner.rank} of {owner.group_size}, and this "
                f"Buffer is of rank {self.rank} of {self.group_size}")
        if owner.runtime is None:
            raise weft.InvalidArgumentError("handle is of a Buffer that was destroyed")
        return owner

    def _lay_out(self, routing: Routing, is_token_in_rank: Any, num_tokens_per_expert: Any,
                 tag: int) -> None:
        try:
            routing.handle.layout_by_table(is_token_in_rank, num_tokens_per_expert, tag=tag)
        except weft.InvalidArgumentError:
            for name, array, dtypes, shape in (
                    ("is_token_in_rank", is_token_in_rank, ("bool", "uint8"),
                     (None, self.group_size)),
                    ("num_tokens_per_expert", num_tokens_per_expert, ("int32",), (None,))):
                self._comm.address_of(array, name, dtypes, shape)  # by DeepEP's name
            raise

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
        if ints_at(counts.tags, self.group_size).count(tag) < self.group_size:
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

    def _handle(self, routing: Routing, src_token: torch.Tensor, is_token_in_rank: torch.Tensor,
                config: Config | None) -> Handle:
        ends = routing.row_ends()
        num_channels = (config.num_sms if config else self.num_sms) // 2
        if self.group_size <= RANKS_PER_NODE:
            return intranode_handle(routing, ends, src_token, is_token_in_rank, num_channels,
                                    self._placeholders)
        return internode_handle(routing, ends, is_token_in_rank,
                                num_nodes_of(self.group_size), num_channels,
                                self._placeholders)

    @without_modes
    def combine(self, x: torch.Tensor, handle: Handle, topk_weights: torch.Tensor | None = None,
                bias: Any = None, config: Config | None = None, previous_event: Any = None,
                async_finish: bool = False,
                allocate_on_comm_stream: bool = False) -> tuple[Any, ...]:
        owner, routing = self._owner_of(handle), handle.weft
        if owner is not self:
            return owner.combine(x, handle, topk_weights, bias, config, previous_event,
                                 async_finish)
        if not isinstance(x, torch.Tensor):
            raise weft.InvalidArgumentError(f"x is {_described(x)}; it must be a tensor")
        x = routing.look_at_answers(x)
        biases = bias if isinstance(bias, tuple) else (bias,)
        num_blocks = self._num_blocks(config)
        if topk_weights is not None:
            topk_weights = routing.look_at_weights(topk_weights)

        def summed(_: Pool) -> tuple[Any, Any]:
            self._look_for_lost_rows(routing)
            self._landing.begin()
            if self._is_capturing():
                self._keep_for_graphs(routing)
            weights = None if topk_weights is None else self._reached(topk_weights)
            out = routing.handle.combine(self._reached(x), bias=biases, topk_weights=weights,
                                         num_blocks=num_blocks)
            made = (out, None) if weights is None else out
            return made, made

        outputs, event = self._run(summed, (x, topk_weights, biases), previous_event,
                                   async_finish)
        return *outputs, event

    def _reached(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that other ranks can read: this one, or a copy of it."""
        return tensor if self._comm.is_direct(tensor) else self._landing.place(tensor)

    internode_dispatch, internode_combine = dispatch, combine


def _described(value: Any) -> str:
    """Text about a wrong argument: its dtype and shape, or its type."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape)}"
    return f"a {type(value).__name__}"


def _look_at_choices(topk_idx: Any) -> None:
    if not isinstance(topk_idx, torch.Tensor) or topk_idx.dim() != 2:
        raise weft.InvalidArgumentError(
            f"topk_idx is {_described(topk_idx)}; it must be a tensor [tokens, top-k]")


def _planes_of(x: Any) -> tuple[torch.Tensor, ...]:
    """x of dispatch: rows, or rows and scales."""
    planes = x if isinstance(x, tuple) and x else (x,)
    for plane in planes:
        if not isinstance(plane, torch.Tensor) or plane.dim() == 0:
            raise weft.InvalidArgumentError(
                f"x is {_described(plane)}; it must be a tensor [tokens, hidden], or two of them, "
                "rows and scales")
    return (planes[0], *(plane.contiguous() for plane in planes[1:]))


def _rows_of(planes: tuple[torch.Tensor, ...]) -> tuple[Rows, ...]:
    return tuple(Rows(plane.dtype, tuple(plane.shape[1:])) for plane in planes)
