# SPDX-License-Identifier: MIT
"""DeepEP's normal functions: layout, dispatch and combine."""
from __future__ import annotations

import ctypes
from typing import Any

import torch
import weft
from weft import arrays
from weft.agreement import tag_of
from weft.expert_parallel import ints_at
from weft.torch import Pool

from .arrival import Arrival
from .config import RANKS_PER_NODE, Config, num_nodes_of
from .delivery import Delivery, described, planes_of, rows_of
from .events import without_modes
from .routing import Handle, Placeholders, Routing, internode_handle, intranode_handle

MAX_RANKS_WITHOUT_TOPK = 64  # that one token goes to


class NormalFunctions(Delivery):
    """Part of Buffer."""

    def _open_normal(self) -> None:
        self._open_delivery(weft.EpOrder.BY_RANK)
        self._placeholders = Placeholders(self._device())

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
        planes = planes_of(x)
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
            routing.look_at_room(rows_of(planes), arrival.row_bytes)
            self._look_for_lost_rows(routing)
            made = self._receive(arrival, outputs)
            return (tuple(made) if isinstance(x, tuple) else made[0], None, None, None, None), made

        def routed(outputs: Pool) -> tuple[Any, Any]:
            num_topk = min(self.group_size, MAX_RANKS_WITHOUT_TOPK) if topk_idx is None \
                else topk_idx.shape[1]
            routing = self._handles.take(self, arrays.num_rows(is_token_in_rank), num_topk,
                                         num_tokens_per_expert.numel(), expert_alignment)
            like = rows_of(planes)
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
                    f"num_tokens_per_expert is {described(num_tokens_per_expert)}; it must be a "
                    "tensor")
            assert (topk_idx is None) == (topk_weights is None), "both of top-k, or none"
            if topk_idx is not None:
                _look_at_choices(topk_idx)
            assert num_worst_tokens == 0 or topk_idx is not None, "num_worst_tokens needs top-k"
        outputs, event = self._run(routed if handle is None else cached,
                                   (x, topk_idx, topk_weights, is_token_in_rank,
                                    num_tokens_per_expert), previous_event, async_finish)
        return *outputs, event

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

    def _handle(self, routing: Routing, src_token: torch.Tensor, is_token_in_rank: torch.Tensor,
                config: Config | None) -> Handle:
        ends = routing.device_counts().recv_rank_ends
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
            raise weft.InvalidArgumentError(f"x is {described(x)}; it must be a tensor")
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

    internode_dispatch, internode_combine = dispatch, combine


def _look_at_choices(topk_idx: Any) -> None:
    if not isinstance(topk_idx, torch.Tensor) or topk_idx.dim() != 2:
        raise weft.InvalidArgumentError(
            f"topk_idx is {described(topk_idx)}; it must be a tensor [tokens, top-k]")
