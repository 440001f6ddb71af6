# SPDX-License-Identifier: MIT
"""DeepEP's low-latency functions on weft_ll (rooms.py). A rank refuses a call before it changes
anything, since the other ranks do not know of the refusal."""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterator, Sequence

import torch
import weft
from weft import InvalidArgumentError, LlAnswer, LlPhases, ScaleKind
from weft.outputs import Outputs

from .events import EventOverlap, no_modes
from .overlap import Overlap, overlap_of
from .rooms import MAX_ROOMS, Answers, Kind, Room, Rooms, Unreceived

BOTH, SEND, RECEIVE = LlPhases.SEND_AND_RECEIVE, LlPhases.SEND, LlPhases.RECEIVE


class Dispatch:
    """A dispatch in a room, with the checked arguments of its phases."""

    __slots__ = ("used", "room", "unreceived", "_result", "_first", "_second")

    def __init__(self, room: Room, result: object, out: Outputs, x: torch.Tensor,
                 topk_idx: torch.Tensor, max_tokens: int, total_rows: torch.Tensor | None,
                 waited: torch.Tensor | None, is_hooked: bool):
        ll = room.ll
        self.used = (x, topk_idx, out, total_rows, waited)
        self.room, self._result, self.unreceived = room, result, room.dispatches
        if is_hooked:
            self._first = ll.dispatch_args(x, topk_idx, phases=SEND)
            self._second = ll.dispatch_args(None, None, None, out, phases=RECEIVE,
                                            total_rows_per_expert=total_rows, waited_ns=waited)
        else:
            self._first = ll.dispatch_args(x, topk_idx, None, out, phases=BOTH,
                                           total_rows_per_expert=total_rows, waited_ns=waited)
            self._second = None
        if not topk_idx.is_cuda:
            _check_choices(topk_idx, room.kind.num_experts, max_tokens)

    def begin(self) -> None:
        if self._second is not None:
            self.room.ll.check(self._second)
        self.room.begin_dispatch(self._first)

    def run(self, stream: weft.Stream | None) -> None:
        self.room.ll.run_dispatch(self._first, stream, *self.used)
        self.room.has_dispatched(self._result)

    def receive(self, stream: weft.Stream | None) -> None:
        self.room.ll.run_dispatch(self._second, stream, *self.used)


class Combine:
    """A combine in a room, with the checked arguments of its phases."""

    __slots__ = ("used", "room", "unreceived", "_handle", "_topk_idx", "_first", "_second")

    def __init__(self, room: Room, handle: Handle, out: torch.Tensor, x: torch.Tensor,
                 topk_idx: torch.Tensor, topk_weights: torch.Tensor,
                 waited: torch.Tensor | None, overlap: Overlap | None, is_hooked: bool):
        new_args, capacity = room.ll.combine_args, room.capacity(handle.max_tokens)
        num_tokens = handle.num_tokens
        signals = overlap and overlap.signals(room.ll.sizes.num_local_experts, capacity)
        self.used = (x, out, topk_weights, waited, overlap and overlap.words)
        self.room, self._handle, self.unreceived = room, handle, room.combines
        self._topk_idx = topk_idx
        if is_hooked:
            in_send, in_receive = (topk_weights, None) if room.weighing is SEND else \
                (None, topk_weights)
            self._first = new_args(x, num_tokens=num_tokens, topk_weights=in_send, phases=SEND,
                                   expert_capacity=capacity, signals=signals)
            self._second = new_args(None, out, num_tokens=num_tokens, topk_weights=in_receive,
                                    phases=RECEIVE, waited_ns=waited)
        else:
            self._first = new_args(x, out, num_tokens=num_tokens, topk_weights=topk_weights,
                                   phases=BOTH, waited_ns=waited, expert_capacity=capacity,
                                   signals=signals)
            self._second = None

    def begin(self) -> None:
        handle = self._handle
        self.room.begin_combine(handle.result, self._topk_idx, handle.max_tokens)
        if self._second is not None:
            self.room.ll.check(self._second)

    def run(self, stream: weft.Stream | None) -> None:
        self.room.ll.run_combine(self._first, stream, *self.used)
        self.room.has_combined()

    def receive(self, stream: weft.Stream | None) -> None:
        self.room.ll.run_combine(self._second, stream, *self.used)


class Handle(Sequence):
    """DeepEP's elements, of which two are tensors that are made when somebody asks for them."""

    __slots__ = ("_plan", "_block", "room", "result", "num_tokens", "max_tokens")

    def __init__(self, out: Outputs, room: Room, result: object, num_tokens: int, max_tokens: int):
        self._plan, self._block = out.plan, out.block  # without what is large
        self.room, self.result = room, result
        self.num_tokens, self.max_tokens = num_tokens, max_tokens

    def _elements(self) -> tuple[Any, ...]:
        kind, plan, block = self.room.kind, self._plan, self._block
        return (plan.make(block, "src_tokens"), plan.make(block, "row_ranges"),
                self.max_tokens, kind.hidden, kind.num_experts)

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: Any) -> Any:
        return self._elements()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements())


class LowLatencyFunctions:
    """The part of Buffer for decode steps."""

    def _open_low_latency(self) -> None:
        self._rooms = Rooms(self._comm, self._device(), self.enable_shrink,
                             self.num_rdma_bytes)
        may_sum, may_wait = self._allowed()
        self._answers_for = {  # by whether a hook follows
            has_hook: Answers(LlAnswer.SUMS_WEIGHED_LATE if may else LlAnswer.ROWS)
            for has_hook, may in ((False, may_sum), (True, may_wait))}
        # The answers of the last combine, and those of the last combine of each kind. A kind's key
        # is its fields without the answers.
        self._usual_answers = self._answers_for[False]
        self._last_answers: dict[tuple[Any, ...], Answers] = {}
        self._limited_answers: dict[Answers, Answers] = {}

    def _allowed(self) -> tuple[bool, bool]:
        """Two permissions: to sum the rows of a rank's experts before they go back, and to do so if
        a hook follows. Sums need the weights of other ranks, so that sending waits for these."""
        wished = self._settings.answers
        is_one_node = self._comm.node(0) == self._comm.node(self.group_size - 1)
        may_sum = wished != "rows" and is_one_node
        return may_sum, may_sum and wished == "sums"

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
                             return_recv_hook: bool = False, *,
                             x_global_scale: torch.Tensor | None = None,
                             use_nvfp4: bool = False) -> tuple[Any, ...]:
        if use_nvfp4 or x_global_scale is not None:
            raise weft.UnsupportedError(
                "use_nvfp4 and x_global_scale: weft has no rows of NVFP4. Their switch is "
                "VLLM_DEEPEPLL_NVFP4_DISPATCH in vLLM, SGLANG_MOE_NVFP4_DISPATCH in SGLang: set "
                "it to 0, and rows go in FP8 or BF16")
        assert not use_ue8m0 or round_scale, "use_ue8m0 needs round_scale"
        scale = None if not use_fp8 else ScaleKind.UE8M0 if use_ue8m0 else \
            ScaleKind.FP32_POWER_OF_TWO if round_scale else ScaleKind.FP32
        max_tokens = num_max_dispatch_tokens_per_rank
        with no_modes(), self._lock:
            num_tokens, hidden = _sizes(x, "x")
            if num_tokens > max_tokens:
                raise InvalidArgumentError(f"x has {num_tokens} tokens; "
                                           f"num_max_dispatch_tokens_per_rank is {max_tokens}")
            fields = (hidden, num_experts, _sizes(topk_idx, "topk_idx")[1], scale)
            answers = self._last_answers.get(fields, self._usual_answers)
            room = self._rooms.find((*fields, answers), max_tokens)
            result, out = object(), room.new_outputs(max_tokens)
            event, hook = self._issue(
                Dispatch(room, result, out, x, topk_idx, max_tokens,
                         cumulative_local_expert_recv_stats, dispatch_wait_recv_cost_stats,
                         return_recv_hook),
                async_finish, return_recv_hook)
            rows = out.rows if scale is None else (out.rows, out.scales)
            return (rows, out.make("num_rows_per_expert"),
                    Handle(out, room, result, num_tokens, max_tokens), event, hook)

    def low_latency_combine(self, x: torch.Tensor, topk_idx: torch.Tensor,
                            topk_weights: torch.Tensor, handle: Handle, use_logfmt: bool = False,
                            zero_copy: bool = False, async_finish: bool = False,
                            return_recv_hook: bool = False, out: torch.Tensor | None = None,
                            combine_wait_recv_cost_stats: torch.Tensor | None = None, *,
                            overlap: bool = False, **of_overlap: Any) -> tuple[Any, ...]:
        """Arguments of SGLang's overlapped combine, overlap.ARGUMENTS, count with overlap.
        use_logfmt changes nothing: sums go in the rows' type, which is more exact."""
        overlapped = overlap_of(overlap, of_overlap)
        assert not (zero_copy and use_logfmt), "zero_copy goes without use_logfmt"
        _check_handle(handle)
        with no_modes(), self._lock:
            answers = self._answers_for[bool(return_recv_hook)]
            if overlapped:
                answers = self._of_blocks(answers, self._blocks_of(overlapped.num_sms))
            room = self._room_of(handle, answers, topk_idx)
            if zero_copy:
                x = self.get_next_low_latency_combine_buffer(handle)
            if out is None:
                shape = (handle.num_tokens, room.kind.hidden)
                out = x.new_empty_strided(shape, (shape[1], 1))  # faster than empty()
            event, hook = self._issue(
                Combine(room, handle, out, x, topk_idx, topk_weights, combine_wait_recv_cost_stats,
                        overlapped, return_recv_hook),
                async_finish, return_recv_hook)
            self._note_answers(room.kind, return_recv_hook)
            return out, event, hook

    def _room_of(self, handle: Handle, answers: Answers, topk_idx: torch.Tensor) -> Room:
        """The room that has the result. If the result was dispatched for other answers, or has
        ended, this is a room in which it is dispatched again."""
        room = handle.room
        if room.kind.answers is not answers or not room.is_open:
            room = self._rooms.find(room.kind._replace(answers=answers), handle.max_tokens)
        if not room.has(handle.result):
            self._comm.address_of(topk_idx, "topk_idx", ("int64", "int32"),
                                  (handle.num_tokens, room.kind.num_topk))
        return room

    def _of_blocks(self, answers: Answers, num_blocks: int) -> Answers:
        """These answers with so many blocks: the same object each time."""
        if num_blocks == 0:
            return answers
        limited = answers._replace(num_blocks=num_blocks)
        return self._limited_answers.setdefault(limited, limited)

    def _note_answers(self, kind: Kind, has_hook: bool) -> None:
        fields = kind[:-1]
        if self._last_answers.get(fields) is kind.answers:
            return
        if len(self._last_answers) == MAX_ROOMS:
            self._last_answers.clear()
        self._last_answers[fields] = kind.answers
        self._usual_answers = self._answers_for[bool(has_hook)]

    def _issue(self, operation: Dispatch | Combine, async_finish: bool, return_recv_hook: bool
               ) -> tuple[EventOverlap, Callable[[], None] | None]:
        """Runs both phases; or runs the first one and returns a hook that runs the second. Phases
        run on the current stream, so that no streams wait, unless it must not wait for them."""
        assert not (async_finish and return_recv_hook), "either async_finish or return_recv_hook"
        room, unreceived = operation.room, operation.unreceived
        if self._is_capturing():
            room.is_captured = True
        if not room.is_open:
            self._rooms.open(room)
        if async_finish:
            def both(_: Any) -> tuple[Any, Any]:
                operation.begin()
                unreceived.receive_all()
                return operation.run(None), ()

            return self._run(both, operation.used, async_finish=True)[1], None
        operation.begin()
        if not return_recv_hook:
            if unreceived:
                unreceived.receive_all()
            operation.run(None)
            return EventOverlap(), None
        stream = self._comm.current_stream()
        operation.run(stream)
        receive = partial(operation.receive, stream)
        unreceived.append(receive)
        return EventOverlap(), partial(self._receive_up_to, unreceived, receive)

    def _receive_up_to(self, unreceived: Unreceived, receive: Callable[[], None]) -> None:
        with no_modes(), self._lock:
            unreceived.receive_up_to(receive)

    def get_next_low_latency_combine_buffer(self, handle: Handle) -> torch.Tensor:
        """[local experts, rows, hidden], for zero_copy."""
        _check_handle(handle)
        return handle.room.zero_copy_buffer(handle.max_tokens, self._device())

    # ------------------------------------------------------------ masks

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Masks a rank; ranks come back by low_latency_clean_mask_buffer() alone."""
        assert self.enable_shrink and mask, "needs enable_shrink, and mask=True"
        if not 0 <= rank_to_mask < self.group_size:
            raise InvalidArgumentError(f"rank_to_mask is {rank_to_mask}; allowed are "
                                       f"0..{self.group_size - 1}")
        with self._lock:
            self._rooms.mask(rank_to_mask)

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        assert self.enable_shrink, "needs enable_shrink"
        self._rooms.masks.query_mask(mask_status)

    def low_latency_clean_mask_buffer(self) -> None:
        """All ranks that live call it; those that do not come stay masked."""
        assert self.enable_shrink, "needs enable_shrink"
        with self._lock:
            self._rooms.unmask_all()


def _sizes(tensor: torch.Tensor, name: str) -> tuple[int, int]:
    try:
        first, second = tensor.shape
        return first, second
    except (AttributeError, ValueError):
        raise InvalidArgumentError(
            f"{name} is {getattr(tensor, 'shape', type(tensor).__name__)}; it must be a tensor of "
            "two dimensions") from None


def _check_choices(topk_idx: torch.Tensor, num_experts: int, max_tokens: int) -> None:
    """Refuses what can fill the room of other ranks, so that no dispatch on machine cpu fails for
    want of room. On GPUs the check would wait for the ids."""
    if topk_idx.numel() <= max_tokens:
        return
    named = topk_idx[(topk_idx >= 0) & (topk_idx < num_experts)]  # others are ignored
    counts = torch.bincount(named, minlength=1)
    most = int(counts.max())
    if most > max_tokens:
        raise InvalidArgumentError(
            f"topk_idx names expert {int(counts.argmax())} {most} times; an expert has room for "
            f"{max_tokens} rows of a rank (num_max_dispatch_tokens_per_rank), one for each time "
            "that a token names it")


def _check_handle(handle: Any) -> None:
    if not isinstance(handle, Handle):
        raise InvalidArgumentError(f"handle is of type {type(handle).__name__}; it must be what "
                                   "low_latency_dispatch() returned")
