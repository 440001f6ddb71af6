# SPDX-License-Identifier: MIT
"""ElasticBuffer, which callers of DeepEP's V2 make."""
from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
import weft
from weft.agreement import tag_of
from weft.eager import eager_methods
from weft.torch import Pool

from ..arrival import Arrival
from ..delivery import Delivery, described, planes_of, rows_of
from ..events import EventHandle, EventOverlap, without_modes
from ..exchange import Exchange
from ..routing import Placeholders
from .handle import EPHandle
from .one_sided import OneSided
from .sizes import Sizes, by_columns

__all__ = ["EPHandle", "ElasticBuffer"]

MAX_TOPK = 32


@eager_methods
class ElasticBuffer(Sizes, OneSided, Delivery, Exchange):
    """Communication of a group of ranks. Constructor and destroy() are collective, and so are all
    operations. weft sizes its own buffers, so that sizes, QPs and the service level change nothing.
    Received rows are in order of source rank and token, always as with `deterministic`."""

    def __init__(self, group: Any, num_bytes: int | None = None, num_cpu_bytes: int = 0,
                 num_max_tokens_per_rank: int = 0, hidden: int = 0, num_topk: int = 0,
                 use_fp8_dispatch: bool = False, deterministic: bool = False,
                 allow_hybrid_mode: bool = True, allow_multiple_reduction: bool = True,
                 prefer_overlap_with_compute: bool = True, sl_idx: int = 3,
                 num_allocated_qps: int = 0, num_cpu_timeout_secs: int = 300,
                 num_gpu_timeout_secs: int = 100, explicitly_destroy: bool = False) -> None:
        timeout_ms = 1000 * max(num_cpu_timeout_secs, num_gpu_timeout_secs)
        self.rank_idx, self.num_ranks = self._meet(group, None, (False, 0, 0), timeout_ms)
        self.allow_hybrid_mode = allow_hybrid_mode
        self.allow_multiple_reduction = allow_multiple_reduction
        self.prefer_overlap_with_compute = prefer_overlap_with_compute
        self.deterministic, self.explicitly_destroy = deterministic, explicitly_destroy
        self.num_max_tokens_per_rank = num_max_tokens_per_rank
        self.num_bytes = num_bytes if num_bytes is not None else self.get_buffer_size_hint(
            group, num_max_tokens_per_rank, hidden, num_topk, use_fp8_dispatch)
        self.num_allocated_qps = num_allocated_qps or (129 if allow_hybrid_mode else 17)
        self.num_rdma_ranks, self.num_nvlink_ranks = self.get_physical_domain_size()
        self.num_scaleout_ranks, self.num_scaleup_ranks = self.get_logical_domain_size()
        self.scaleout_rank_idx, self.scaleup_rank_idx = divmod(self.rank_idx,
                                                               self.num_scaleup_ranks)
        self._placeholders = Placeholders(self._device())
        rounds_nodes = allow_hybrid_mode and allow_multiple_reduction
        self._open_delivery(weft.EpOrder.BY_CHOICE, combine_wire=weft.Dtype.NONE if rounds_nodes
                            else weft.Dtype.FP32)

    def destroy(self) -> None:
        assert self.explicitly_destroy, "explicitly_destroy must be set"
        if self.runtime is not None:
            self._leave()

    @staticmethod
    def capture() -> EventHandle:
        return EventHandle()

    def barrier(self, use_comm_stream: bool = True, with_cpu_sync: bool = False,
                sequential: bool = True) -> None:
        """On the stream, in the order of other operations."""
        if with_cpu_sync and self._comm.is_on_gpu:
            torch.cuda.synchronize()
        self._run(lambda _: (self._comm.barrier(), None), ())
        if with_cpu_sync and self._comm.is_on_gpu:
            torch.cuda.synchronize()

    # ------------------------------------------------------------ dispatch

    @torch.no_grad()
    @without_modes
    def dispatch(self, x: Any, topk_idx: torch.Tensor | None = None,
                 topk_weights: torch.Tensor | None = None,
                 cumulative_local_expert_recv_stats: torch.Tensor | None = None,
                 num_experts: int | None = None, num_max_tokens_per_rank: int | None = None,
                 expert_alignment: int | None = None, num_sms: int = 0, num_qps: int = 0,
                 previous_event: Any = None, previous_event_before_epilogue: Any = None,
                 async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False,
                 handle: EPHandle | None = None, do_handle_copy: bool = True,
                 do_cpu_sync: bool | None = None, do_expand: bool = False,
                 do_zero_padding: bool = False, use_tma_aligned_col_major_sf: bool = False
                 ) -> tuple[Any, ...]:
        planes = planes_of(x)
        asked = {"num_experts": num_experts, "num_max_tokens_per_rank": num_max_tokens_per_rank,
                 "expert_alignment": expert_alignment}
        _look_at_events(previous_event, allocate_on_comm_stream)
        if do_zero_padding and not do_expand:
            raise weft.InvalidArgumentError("do_zero_padding is of do_expand alone")
        if handle is None:
            self._look_at_routing(planes, topk_idx, asked, cumulative_local_expert_recv_stats)
        else:
            self._look_at_handle(handle, asked, topk_idx, do_cpu_sync, do_expand)
        if topk_weights is not None:
            topk_weights = topk_weights.contiguous()
            self._comm.address_of(topk_weights, "topk_weights", ("float32",), tuple(
                (handle.topk_idx if topk_idx is None else topk_idx).shape))

        def operation(outputs: Pool) -> tuple[Any, Any]:
            _wait_for(previous_event_before_epilogue)
            if handle is None:
                routed = EPHandle(
                    self._handles.take(
                        self, len(topk_idx), topk_idx.shape[1], asked["num_experts"],
                        asked["expert_alignment"], max_tokens=asked["num_max_tokens_per_rank"]),
                    topk_idx.clone() if do_handle_copy else topk_idx,
                    num_sms=num_sms or self.get_theoretical_num_sms(num_experts,
                                                                    topk_idx.shape[1]),
                    num_blocks=self._blocks_of(num_sms), do_expand=do_expand, **asked)
                made = self._route(routed, planes, topk_weights, do_cpu_sync is not False, outputs)
                if cumulative_local_expert_recv_stats is not None:
                    cumulative_local_expert_recv_stats.add_(
                        routed.weft.device_counts().num_selections_per_expert)
            else:
                routed, sent = handle, (*planes, *_optional(topk_weights))
                arrival = self._arrival(handle, sent, num_sms)
                handle.weft.look_at_room(rows_of(sent), arrival.row_bytes)
                made = self._receive(arrival, outputs)
            *rows, recv_topk_idx = made
            weights = None if topk_weights is None else rows.pop(len(planes))
            src_idx = rows.pop() if handle is None else None
            if do_expand:
                rows, weights = self._expand(routed, rows, recv_topk_idx, weights, num_sms,
                                             zero_gaps=do_zero_padding)
            if handle is None:
                routed.set_rows(src_idx, recv_topk_idx)
            if use_tma_aligned_col_major_sf:
                rows[1:] = map(by_columns, rows[1:])
            recv_topk_idx = None if do_expand else recv_topk_idx
            return (tuple(rows) if isinstance(x, tuple) else rows[0], recv_topk_idx, weights,
                    routed), (rows, recv_topk_idx, weights, routed.tensors())

        inputs = (x, topk_idx, topk_weights, cumulative_local_expert_recv_stats,
                  () if handle is None else handle.tensors())
        outputs, event = self._run(operation, inputs, _overlap(previous_event),
                                   async_with_compute_stream)
        return *outputs, event

    def _look_at_routing(self, planes: tuple[torch.Tensor, ...], topk_idx: Any,
                         asked: dict[str, int | None], stats: torch.Tensor | None) -> None:
        """Checks what comes without a handle, and sets what was not given."""
        if not isinstance(topk_idx, torch.Tensor) or topk_idx.dim() != 2 or \
                not 1 <= topk_idx.shape[1] <= MAX_TOPK:
            raise weft.InvalidArgumentError(
                f"topk_idx is {described(topk_idx)}; it must be a tensor [tokens, top-k] of 1.."
                f"{MAX_TOPK} choices")
        for name, value in (("num_experts", None), ("expert_alignment", 1),
                            ("num_max_tokens_per_rank", self.num_max_tokens_per_rank)):
            asked[name] = weft.abi.whole(
                name, value if asked[name] is None else asked[name], ctypes.c_int32)
            if asked[name] < 1:
                raise weft.InvalidArgumentError(f"{name} is {asked[name]}; it must be 1 or more")
        if asked["num_experts"] % self.num_ranks:
            raise weft.InvalidArgumentError(
                f"num_experts is {asked['num_experts']}; it must be a multiple of the "
                f"{self.num_ranks} ranks")
        if len(planes[0]) > asked["num_max_tokens_per_rank"]:
            raise weft.InvalidArgumentError(
                f"x has {len(planes[0])} tokens, num_max_tokens_per_rank is "
                f"{asked['num_max_tokens_per_rank']}")
        if stats is not None:
            self._comm.address_of(stats, "cumulative_local_expert_recv_stats", ("int32",),
                                  (asked["num_experts"] // self.num_ranks,))

    def _look_at_handle(self, handle: Any, asked: dict[str, int | None], topk_idx: Any,
                        do_cpu_sync: bool | None, do_expand: bool) -> None:
        if self._owner_of(handle) is not self:
            raise weft.InvalidArgumentError("handle is of another ElasticBuffer")
        assert topk_idx is None, "a handle comes without topk_idx"
        assert not do_cpu_sync, "a handle knows its counts: do_cpu_sync must be False or None"
        for name, value in asked.items():
            if value not in (None, getattr(handle, name)):
                raise weft.InvalidArgumentError(
                    f"{name} is {value}, and {getattr(handle, name)} of the handle")
        if do_expand and not handle.do_expand:
            raise weft.InvalidArgumentError("handle is of a dispatch without do_expand")

    def _route(self, handle: EPHandle, planes: tuple[torch.Tensor, ...],
               topk_weights: torch.Tensor | None, do_cpu_sync: bool, outputs: Pool
               ) -> list[torch.Tensor]:
        """Tokens find their rows, which then come; a plane more has column 0 of the metadata."""
        routing, topk_idx, most = handle.weft, handle.topk_idx, handle.num_max_tokens_per_rank
        num_topk, like = topk_idx.shape[1], rows_of(planes)
        terms = (("x", like), ("topk_idx", (topk_idx.dtype, num_topk)),
                 ("topk_weights", topk_weights is not None), ("num_experts", handle.num_experts),
                 ("num_max_tokens_per_rank", most), ("do_cpu_sync", do_cpu_sync),
                 ("do_expand", handle.do_expand),
                 ("allow_multiple_reduction", self.allow_multiple_reduction),
                 ("bytes of pools", (self._landing.num_bytes, outputs.num_bytes)))
        tag = tag_of(terms)
        routing.handle.layout(topk_idx.contiguous(), tag=tag)
        first = self.rank_idx * most
        src_idx = torch.arange(first, first + len(topk_idx), dtype=torch.int32,
                               device=topk_idx.device).unsqueeze(1)
        arrival = self._arrival(handle, (*planes, *_optional(topk_weights), src_idx), 0)
        item_bytes = 4 if handle.do_expand and not self.allow_multiple_reduction else 2
        routing.set_room(like, max(  # also of gradients, which are wider than narrow rows
            arrival.row_bytes, item_bytes * math.prod(like[0].shape) + 12 * num_topk))
        routing.handle.notify()
        counts = self._count(routing, terms, tag, outputs,
                             0 if do_cpu_sync else most * self.num_ranks)
        routing.may_lack_rows = False  # no rank has more tokens than it says
        self._make_room(routing, outputs)
        made = self._receive(arrival, outputs)
        handle.set_counts(counts if do_cpu_sync else None, self.num_scaleout_ranks)
        handle.dst_buffer_slot_idx = self._placeholders.of_batch(*topk_idx.shape)
        return made

    def _arrival(self, handle: EPHandle, planes: tuple[torch.Tensor, ...], num_sms: int) -> Arrival:
        return Arrival(handle.weft, planes, handle.topk_idx.contiguous(), None,
                       with_src_token=False, is_capturing=self._is_capturing(),
                       num_blocks=self._blocks_of(num_sms) or handle.num_blocks)

    def _expand(self, handle: EPHandle, rows: list[torch.Tensor], recv_topk_idx: torch.Tensor,
                weights: torch.Tensor | None, num_sms: int, *, zero_gaps: bool
                ) -> tuple[list[torch.Tensor], torch.Tensor | None]:
        """Rows by expert. The first time it tells the handle where they are."""
        known = handle.choice_rows
        made = handle.weft.handle.expand(
            rows, topk_idx=recv_topk_idx if known is None else None, choice_rows=known,
            topk_weights=weights, capacity=handle.num_expanded_tokens, zero_gaps=zero_gaps,
            num_blocks=self._blocks_of(num_sms) or handle.num_blocks)
        handle.choice_rows = made.choice_rows
        return list(made.planes), made.row_weights

    # ------------------------------------------------------------ combine

    @torch.no_grad()
    @without_modes
    def combine(self, x: torch.Tensor, handle: EPHandle, topk_weights: torch.Tensor | None = None,
                bias: Any = None, num_sms: int = 0, num_qps: int = 0, previous_event: Any = None,
                previous_event_before_epilogue: Any = None,
                async_with_compute_stream: bool = False, allocate_on_comm_stream: bool = False
                ) -> tuple[torch.Tensor, torch.Tensor | None, EventOverlap]:
        if self._owner_of(handle) is not self:
            raise weft.InvalidArgumentError("handle is of another ElasticBuffer")
        if not isinstance(x, torch.Tensor):
            raise weft.InvalidArgumentError(f"x is {described(x)}; it must be a tensor")
        _look_at_events(previous_event, allocate_on_comm_stream)
        routing = handle.weft
        x = routing.look_at_answers(x)
        biases = bias if isinstance(bias, tuple) else (bias,)
        if topk_weights is not None:
            assert self.allow_multiple_reduction or not handle.do_expand, \
                "expanded topk_weights need allow_multiple_reduction"
            if not handle.do_expand:
                topk_weights = routing.look_at_weights(topk_weights)

        def operation(outputs: Pool) -> tuple[Any, Any]:
            _wait_for(previous_event_before_epilogue)
            self._landing.begin()
            if self._is_capturing():
                self._keep_for_graphs(routing)
            made = self._sum(handle, x, topk_weights, biases,
                             self._blocks_of(num_sms) or handle.num_blocks)
            return made, made

        outputs, event = self._run(operation, (x, topk_weights, biases, handle.tensors()),
                                   _overlap(previous_event), async_with_compute_stream)
        return *outputs, event

    def _sum(self, handle: EPHandle, x: torch.Tensor, weights: torch.Tensor | None,
             biases: tuple[Any, ...], num_blocks: int) -> tuple[Any, Any]:
        routing, dtype = handle.weft, x.dtype
        if handle.do_expand:
            num_rows, take = routing.num_rows, self._landing.take
            sums = take((num_rows, x.shape[1]),
                        dtype if self.allow_multiple_reduction else torch.float32)
            if weights is not None:
                row_weights, weights = weights, take((num_rows, handle.topk_idx.shape[1]),
                                                     torch.float32)
            routing.handle.reduce(
                x, handle.choice_rows, sums, out_dtype=sums.dtype, num_blocks=num_blocks,
                **{} if weights is None else {"row_weights": row_weights, "topk_weights": weights})
            x = sums
        elif weights is not None:
            weights = weights.masked_fill(handle.is_elsewhere, 0)  # so that a sum has one of them
        if x.dtype != dtype:
            biases = tuple(bias if bias is None else bias.to(x.dtype) for bias in biases)
        out = routing.handle.combine(
            self._reached(x), bias=biases, num_blocks=num_blocks,
            topk_weights=None if weights is None else self._reached(weights))
        sums, weights = (out, None) if weights is None else out
        return sums.to(dtype), weights


def _optional(value: Any) -> tuple[Any, ...]:
    return () if value is None else (value,)


def _overlap(event: Any) -> Any:
    """An event of V2, which is the handle itself, as one of V1."""
    return EventOverlap(event) if isinstance(event, EventHandle) else event


def _look_at_events(previous_event: Any, allocate_on_comm_stream: bool) -> None:
    assert previous_event is None or allocate_on_comm_stream, \
        "previous_event needs allocate_on_comm_stream"


def _wait_for(event: Any) -> None:
    if event is not None:
        event.current_stream_wait()
