# SPDX-License-Identifier: MIT
"""DeepEP's low-latency functions on weft_ll.

weft combines a result once, in the order in which they were made; DeepEP any number of times, in
any order. The usual step, a dispatch and its combine, ends its result, so that it leaves nothing
behind, in a graph as well. Whoever combines a result that has ended gets it by dispatching once
more. All ranks make the same calls, so they do the same.
"""
from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, Callable, Iterator, NamedTuple, Sequence

import torch
import weft
from weft import Dtype, LlAnswer, LlOnMissing, LlPhases, ScaleKind
from weft.outputs import Outputs

from .events import EventOverlap, no_modes

GROUP_ELEMENTS = 128  # that share a scale
MAX_RESULTS = 2
BOTH, SEND, RECEIVE = LlPhases.SEND_AND_RECEIVE, LlPhases.SEND, LlPhases.RECEIVE
NOT_ASKED = ("num_rows_per_rank", "missing_ranks")  # outputs that DeepEP does not have


class Answers(NamedTuple):
    """What combine sends back."""

    kind: LlAnswer
    wire: Dtype = Dtype.NONE  # logarithms, or NONE: as they are


class Shape(NamedTuple):
    """What a weft_ll is made for."""

    max_tokens: int
    hidden: int
    num_experts: int
    num_topk: int
    scale: ScaleKind | None  # None: rows are not quantised
    answers: Answers


class Unreceived(deque):
    """How to receive for operations that have sent and not received, whose hooks were not called
    yet. weft receives in the order in which they have sent, DeepEP in that of the hooks: so a hook
    receives for those before it, too, whose own hooks have nothing left to do."""

    def receive_up_to(self, last: Callable[[], None]) -> None:
        while last in self:
            self._receive_first()

    def receive_all(self) -> None:
        while self:
            self._receive_first()

    def _receive_first(self) -> None:
        self[0]()
        self.popleft()


class Room:
    """A weft_ll and its results that are not released."""

    def __init__(self, ep: weft.ExpertParallel, shape: Shape, on_missing: LlOnMissing):
        quantised = {} if shape.scale is None else {
            "narrow": Dtype.FP8_E4M3, "scale": shape.scale, "group": GROUP_ELEMENTS,
            "scale_columns": True}
        self.ll = weft.LowLatency(ep, shape.hidden, shape.max_tokens, shape.num_topk,
                                  torch.bfloat16, answer=shape.answers.kind,
                                  answer_dtype=shape.answers.wire, num_results=MAX_RESULTS,
                                  on_missing=on_missing, **quantised)
        self.shape = shape
        self.new_outputs = self.ll.output_maker(NOT_ASKED)
        is_of_rows = shape.answers.kind == LlAnswer.ROWS
        self._weighing = RECEIVE if is_of_rows else SEND
        self.zero_copy_buffer: torch.Tensor | None = None
        self._results: deque[object] = deque()  # dispatched, not combined
        self.dispatches, self.combines = Unreceived(), Unreceived()
        self._scratch: Any = None

    def dispatch(self, result: object, out: Outputs, x: torch.Tensor, topk_idx: torch.Tensor,
                 total_rows: torch.Tensor | None, waited: torch.Tensor | None, phases: LlPhases,
                 stream: weft.Stream | None) -> None:
        """What is refused has made nothing."""
        if phases is not RECEIVE and len(self._results) + len(self.combines) >= MAX_RESULTS:
            self._make_room()
        self.ll.dispatch(x, topk_idx, None, out, phases=phases, total_rows_per_expert=total_rows,
                         waited_ns=waited, stream=stream)
        if phases is not RECEIVE:
            self._results.append(result)

    def _make_room(self) -> None:
        """For one more result."""
        self.combines.receive_all()
        if len(self._results) == MAX_RESULTS:
            self._release()

    def combine(self, result: object, out: torch.Tensor, x: torch.Tensor, topk_idx: torch.Tensor,
                topk_weights: torch.Tensor, waited: torch.Tensor | None, phases: LlPhases,
                stream: weft.Stream | None) -> None:
        """What is refused has ended nothing."""
        if phases is not RECEIVE and not (self._results and self._results[0] is result):
            self._make_oldest(result, topk_idx)
        uses_weights = phases is BOTH or phases is self._weighing
        self.ll.combine(x, out, topk_weights=topk_weights if uses_weights else None,
                        phases=phases, waited_ns=waited, stream=stream)
        if phases is not RECEIVE:
            self._results.popleft()

    def _make_oldest(self, result: object, topk_idx: torch.Tensor) -> None:
        is_there = result in self._results
        while self._results and self._results[0] is not result:
            self._release()
        if not is_there:
            self._dispatch_again(topk_idx)
            self._results.append(result)

    def unmask(self, mask: torch.Tensor, epoch: int) -> None:
        self.ll.unmask(mask, epoch)
        self._results.clear()  # weft has dropped them
        self.dispatches.clear()
        self.combines.clear()

    def _dispatch_again(self, topk_idx: torch.Tensor) -> None:
        """The same routing, of rows that nobody looks at."""
        x = torch.zeros((topk_idx.shape[0], self.shape.hidden), dtype=torch.bfloat16,
                        device=topk_idx.device)
        if self._scratch is None:
            self._scratch = self.ll.output_maker()()
        self.ll.dispatch(x, topk_idx, out=self._scratch)

    def _release(self) -> None:
        self.dispatches.receive_all()
        self.ll.release()
        self._results.popleft()


class Handle(Sequence):
    """DeepEP's elements, of which two are tensors that are made when somebody asks for them."""

    __slots__ = ("_plan", "_block", "room", "result")

    def __init__(self, out: Outputs, room: Room, result: object):
        self._plan, self._block = out.plan, out.block  # without what is large
        self.room, self.result = room, result

    def _elements(self) -> tuple[Any, ...]:
        shape, plan, block = self.room.shape, self._plan, self._block
        return (plan.make(block, "src_tokens"), plan.make(block, "row_ranges"),
                shape.max_tokens, shape.hidden, shape.num_experts)

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: Any) -> Any:
        return self._elements()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements())


class LowLatencyFunctions:
    """The part of Buffer for decode steps."""

    def _open_low_latency(self) -> None:
        self._eps: dict[int, weft.ExpertParallel] = {}
        self._rooms: dict[Shape, Room] = {}
        self._num_unmasks = 0
        may_sum, may_wait = self._allowed()
        self._answers_for = {  # by whether no hook follows, and whether without use_logfmt
            (no_hook, no_logfmt): Answers(
                LlAnswer.SUMS_WEIGHED_LATE if (may_sum if no_hook else may_wait)
                else LlAnswer.ROWS,
                Dtype.NONE if no_logfmt else Dtype.LOG_10BIT)
            for no_hook in (False, True) for no_logfmt in (False, True)}
        self._last_answers = self._answers_for[True, True]

    def _allowed(self) -> tuple[bool, bool]:
        """Whether each rank may sum the rows of its experts before they go back, and whether it may
        where a hook follows: ranks wait for each other's weights, in the phase that sends."""
        wished = self._settings.answers
        is_one_node = self._comm.node(0) == self._comm.node(self.group_size - 1)
        may_sum = wished != "rows" and is_one_node and not self.enable_shrink
        return may_sum, may_sum and wished == "sums"

    def _room(self, fields: tuple[Any, ...]) -> Room:
        """fields: of a Shape, as which they are found."""
        return self._rooms.get(fields) or self._new_room(Shape(*fields))

    def _new_room(self, shape: Shape) -> Room:
        if shape.num_experts not in self._eps:
            self._eps[shape.num_experts] = weft.ExpertParallel(self._comm, shape.num_experts)
        room = self._rooms[shape] = Room(
            self._eps[shape.num_experts], shape,
            LlOnMissing.MASK if self.enable_shrink else LlOnMissing.FAIL)
        return room

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int,
                                 num_experts: int) -> None:
        """weft has nothing to clean; the ranks meet."""
        self._comm.barrier()

    def low_latency_dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor,
                             num_max_dispatch_tokens_per_rank: int, num_experts: int,
                             cumulative_local_expert_recv_stats: torch.Tensor | None = None,
                             dispatch_wait_recv_cost_stats: torch.Tensor | None = None,
                             use_fp8: bool = True, round_scale: bool = False,
                             use_ue8m0: bool = False, async_finish: bool = False,
                             return_recv_hook: bool = False) -> tuple[Any, ...]:
        assert not use_ue8m0 or round_scale, "use_ue8m0 needs round_scale"
        scale = None if not use_fp8 else ScaleKind.UE8M0 if use_ue8m0 else \
            ScaleKind.FP32_POWER_OF_TWO if round_scale else ScaleKind.FP32
        with no_modes(), self._lock:
            room = self._room((num_max_dispatch_tokens_per_rank, x.shape[1], num_experts,
                               topk_idx.shape[1], scale, self._last_answers))
            result, out = object(), room.new_outputs()
            event, hook = self._phases(
                partial(room.dispatch, result, out, x, topk_idx, cumulative_local_expert_recv_stats,
                        dispatch_wait_recv_cost_stats),
                room.dispatches, async_finish, return_recv_hook)
            rows = out.rows if scale is None else (out.rows, out.scales)
            return (rows, out.make("num_rows_per_expert"), Handle(out, room, result), event, hook)

    def low_latency_combine(self, x: torch.Tensor, topk_idx: torch.Tensor,
                            topk_weights: torch.Tensor, handle: Handle, use_logfmt: bool = False,
                            zero_copy: bool = False, async_finish: bool = False,
                            return_recv_hook: bool = False, out: torch.Tensor | None = None,
                            combine_wait_recv_cost_stats: torch.Tensor | None = None
                            ) -> tuple[Any, ...]:
        assert not (zero_copy and use_logfmt), "zero_copy goes without use_logfmt"
        with no_modes(), self._lock:
            room = handle.room
            if zero_copy:
                x = self.get_next_low_latency_combine_buffer(handle)
            self._last_answers = answers = self._answers_for[not return_recv_hook, not use_logfmt]
            if room.shape.answers is not answers:  # dispatched for others: it is dispatched again
                room = self._room(room.shape._replace(answers=answers))
            if out is None:
                num_tokens, hidden = topk_idx.shape[0], room.shape.hidden
                out = x.new_empty_strided((num_tokens, hidden), (hidden, 1))  # faster than empty()
            event, hook = self._phases(
                partial(room.combine, handle.result, out, x, topk_idx, topk_weights,
                        combine_wait_recv_cost_stats),
                room.combines, async_finish, return_recv_hook)
            return out, event, hook

    def _phases(self, operation: partial[None], unreceived: Unreceived, async_finish: bool,
                return_recv_hook: bool) -> tuple[EventOverlap, Callable[[], None] | None]:
        """Both phases at once; or the first one, and a hook that runs the second. They run on the
        current stream, unless it is not to wait for them: one less to tell and to be told."""
        if not (async_finish or return_recv_hook):
            if unreceived:
                unreceived.receive_all()
            operation(BOTH, None)
            return EventOverlap(), None
        assert not (async_finish and return_recv_hook), "either async_finish or return_recv_hook"
        if async_finish:
            def both(_: Any) -> tuple[Any, Any]:
                unreceived.receive_all()
                return operation(BOTH, None), ()

            return self._run(both, operation.args, async_finish=True)[1], None
        stream = self._comm.current_stream()
        operation(SEND, stream)
        receive = partial(operation, RECEIVE, stream)
        unreceived.append(receive)
        return EventOverlap(), partial(self._receive_up_to, unreceived, receive)

    def _receive_up_to(self, unreceived: Unreceived, receive: Callable[[], None]) -> None:
        with no_modes(), self._lock:
            unreceived.receive_up_to(receive)

    def get_next_low_latency_combine_buffer(self, handle: Handle) -> torch.Tensor:
        """[local experts, rows, hidden], for zero_copy."""
        room = handle.room
        if room.zero_copy_buffer is None:
            sizes, hidden = room.ll.sizes, room.shape.hidden
            room.zero_copy_buffer = torch.zeros(
                (sizes.num_local_experts, sizes.expert_capacity, hidden), dtype=torch.bfloat16,
                device=self._device())
        return room.zero_copy_buffer

    # ------------------------------------------------------------ masks

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Masks a rank; ranks come back by low_latency_clean_mask_buffer() alone."""
        assert self.enable_shrink and mask, "needs enable_shrink, and mask=True"
        entries = torch.zeros(self.group_size, dtype=torch.int32, device=self._device())
        entries[rank_to_mask] = 1
        for room in self._rooms.values():
            room.ll.mask(entries)

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        assert self.enable_shrink, "needs enable_shrink"
        mask_status.zero_()
        for room in self._rooms.values():
            mask_status |= room.ll.query_mask(torch.empty_like(mask_status))

    def low_latency_clean_mask_buffer(self) -> None:
        """All ranks that live call it; those that do not come stay masked."""
        assert self.enable_shrink, "needs enable_shrink"
        self._num_unmasks += 1
        nobody = torch.zeros(self.group_size, dtype=torch.int32, device=self._device())
        for room in self._rooms.values():
            room.unmask(nobody, self._num_unmasks)
