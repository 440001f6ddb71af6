# SPDX-License-Identifier: MIT
"""Low latency: dispatch and combine of few tokens, in one launch each or in two phases."""
from __future__ import annotations

import ctypes
from collections import deque
from functools import partial
from typing import Any, Callable, NamedTuple, Sequence

from . import abi, arrays
from .abi import Dtype, LlAnswer, LlCall, LlCarrier, LlLayout, LlOnMissing, LlPhases, ScaleKind
from .expert_parallel import ExpertParallel
from .library import InvalidArgumentError, lib, query
from .objects import Native, Object
from .outputs import Outputs, Plan
from .streams import Stream


class Rows(NamedTuple):
    """What a dispatch delivers. L is the number of local experts, C expert_capacity, R the number
    of ranks. By rank only the first is there, and slots() has the rows.

    - num_rows_per_rank: [R] int32, each row counted once
    - rows: [L, C, hidden]; rows that nobody sent are undefined
    - scales: [L, C, groups] float32 or uint8; of columns words of UE8M0 as int32
    - num_rows_per_expert: [L] int32, also of rows beyond an expert_capacity that was given
    - src_tokens: [L, C] int32, index of the token at its source
    - row_ranges: [L, R] int64: number of a source's rows, and the first one << 32
    - missing_ranks: [R] int32, 1 for those that are masked; with LlOnMissing.MASK
    """

    num_rows_per_rank: Any
    rows: Any = None
    scales: Any = None
    num_rows_per_expert: Any = None
    src_tokens: Any = None
    row_ranges: Any = None
    missing_ranks: Any = None


class Slots(NamedTuple):
    """Where received rows are, by rank: row i of source s is [s, i]. half tells which of the two
    results was received last; with one result there is one of each.

    - half: [1] int32
    - x: [R, max_tokens, hidden]
    - scales: [R, max_tokens, groups], if rows are quantised
    - experts: [R, max_tokens, K] int32, local id or -1
    - topk_weights: [R, max_tokens, K] float32
    - src_token: [R, max_tokens, 1] int32
    """

    half: Any
    x: tuple[Any, ...]
    scales: tuple[Any, ...]
    experts: tuple[Any, ...]
    topk_weights: tuple[Any, ...]
    src_token: tuple[Any, ...]


class RowSignals(NamedTuple):
    """Words that tell combine, by expert, which rows of its x are finished, so that it may begin
    before all are. Another stream or thread raises the words; they are less before the call.

    - words: [L, W] of int32 or uint32: word w of an expert is for its rows from w * rows on
    - value: a row is finished when its word is this or more; at least 1
    - rows: the rows of a word; 0: an expert has one word (W is 1), for all its rows
    """

    words: Any
    value: int
    rows: int = 0


_SEND, _RECEIVE = LlPhases.SEND, LlPhases.RECEIVE  # which take less time to name
_BOTH = LlPhases.SEND_AND_RECEIVE
_INDEX_TYPES = tuple(arrays.INDEX_TYPES)


def _makers(kind: Any, **fields: int) -> dict[LlPhases, Any]:
    """Of arguments for each phase: copies, which take a tenth of the time of new ones."""
    return {phases: partial(kind.from_buffer_copy,
                            kind(phases=phases, **({} if phases == _SEND else fields)))
            for phases in LlPhases}


class LowLatency(Object):
    """Room for the rows of all ranks. Collective.

    dtype: of tokens and of what experts make of them: bfloat16, float16 or float32. narrow: rows
    are quantised on their way, with a scale for each `group` elements. Further settings are those
    of weft_ll_config: expert_capacity, num_results, num_blocks, num_warps, route, on_missing,
    missing_ms, carrier, num_experts, bytes_within, network_bytes_within. K is num_topk.

    A token that chooses an expert twice has two rows there. Without expert_capacity an expert has
    room for max_tokens rows of each rank; if more come than fit, all ranks raise CapacityError.

    sizes: its memory, and its carrier. sizes.carrier_reason tells why LlCarrier.AUTO has not chosen
    a faster one.

    within: another LowLatency, whose memory and masks this one uses. A rank makes it alone.
    """

    def __init__(self, *settings: Any, **more: Any):
        self._describe(*settings, **more)
        self.make()

    @classmethod
    def described(cls, *settings: Any, **more: Any) -> LowLatency:
        """Returns a LowLatency that is not made yet; its sizes are known. Local."""
        described = cls.__new__(cls)
        described._describe(*settings, **more)
        return described

    def make(self) -> None:
        """Makes a described LowLatency. Collective, unless it is within another one."""
        made = ctypes.c_void_p()
        owner = self.ep._native if self._within is None else self._within._native
        self.ep.comm.call(lib.weft_ll_create, self.ep._native.pointer(),
                          ctypes.byref(self._config), ctypes.byref(made), using=(owner,))
        self._native = Native("ll", made.value, owner, ends_when_dropped=False)

    def _describe(self, ep: ExpertParallel, hidden: int, max_tokens: int, num_topk: int, dtype: Any,
                  *, layout: LlLayout = LlLayout.BY_EXPERT, answer: LlAnswer = LlAnswer.SUMS,
                  answer_dtype: Dtype = Dtype.NONE, narrow: Dtype = Dtype.NONE,
                  scale: ScaleKind = ScaleKind.FP32, group: int = 0, scale_columns: bool = False,
                  within: LowLatency | None = None, **config: int) -> None:
        self._dtype = arrays.dtype_name(dtype)
        settings = abi.LlConfig(
            hidden=hidden, max_tokens=max_tokens, num_topk=num_topk,
            dtype=arrays.dtype_value(self._dtype), layout=layout, answer=answer,
            answer_dtype=answer_dtype,
            quantisation=abi.Quantisation(dtype=narrow, scale=scale, group_elements=group),
            within=within and within._native.pointer(), **config)
        self.ep, self._within = ep, within
        self._hidden, self._num_topk = hidden, num_topk
        self.sizes = query(abi.LlSizes, lib.weft_ll_query_sizes, ep._native.pointer(),
                           ctypes.byref(settings))
        self._config = settings
        self._by_expert = layout == LlLayout.BY_EXPERT
        self._row_dtype = self._dtype if narrow == Dtype.NONE else arrays.name_of(narrow)
        self._scale_columns = scale_columns
        self._shapes = self._shapes_of_outputs(self.sizes.expert_capacity)
        self._outputs = [(name, f"out.{name}", shape, (dtype,))
                         for name, (shape, dtype) in self._shapes.items()]
        self._per_expert, self._per_rank = (self.sizes.num_local_experts,), (ep.comm.num_ranks,)
        has_columns = scale_columns and "scales" in self._shapes
        self._new_dispatch = _makers(
            abi.LlDispatchArgs,
            scale_column_bytes=4 * self.sizes.expert_capacity if has_columns else 0)
        self._new_combine = _makers(abi.LlCombineArgs)
        self._dtypes, self._cuda_device = (self._dtype,), ep.comm.cuda_device
        self._tokens: deque[int] = deque()  # of the results that are not combined yet
        self._ends: deque[bool] = deque()  # whether combines that are sent, not received, end one
        self._like: Any = None
        # What the last arguments were is looked at no more in those that are like them.
        self._sent: tuple[Any, ...] = (arrays.recognise_nothing, 0, 0)
        self._combined: tuple[Any, ...] = (arrays.recognise_nothing, 0, 0, 0)
        self._is_like_total = arrays.recognise_nothing

    def _about(self) -> str:
        layout = "expert" if self._by_expert else "rank"
        return (f"of {self._config.max_tokens} tokens of {self._hidden} {self._dtype}, "
                f"top-{self._num_topk}, by {layout}, "
                f"carrier {LlCarrier(self.sizes.carrier).name.lower()}, of {self.ep}")

    # ------------------------------------------------------------ dispatch

    def dispatch(self, x: Any = None, topk_idx: Any = None, topk_weights: Any = None,
                 out: Rows | Outputs | None = None, *, phases: LlPhases = LlPhases.SEND_AND_RECEIVE,
                 total_rows_per_expert: Any = None, waited_ns: Any = None,
                 expert_signals: Any = None, stream: Stream | None = None
                 ) -> Rows | Outputs | None:
        """Sends each token's row to the ranks of its experts. Collective.

        To send: x [N, hidden], topk_idx [N, K] of int32 or int64, topk_weights [N, K] of float32,
        without which they are 1. To receive: out, or it is allocated like x;
        total_rows_per_expert [L] of int32, to which counts are added; waited_ns [R] of int64, to
        which is added how long it waited for each rank; and by expert expert_signals [L] of int64
        or uint64, each of which gets 1 more when all rows of its expert are in out, while other
        rows may still come. All bits are set when dispatch fails. Returns out, None when only
        sending.
        """
        if out is None and phases != _SEND:
            out = self.empty_rows(x if self._like is None else self._like)
        args = self.dispatch_args(x, topk_idx, topk_weights, out, phases=phases,
                                  total_rows_per_expert=total_rows_per_expert, waited_ns=waited_ns,
                                  expert_signals=expert_signals)
        self.run_dispatch(args, stream, x, topk_idx, topk_weights, out, total_rows_per_expert,
                          waited_ns, expert_signals)
        if phases != _RECEIVE:
            self._like = x
        return out if phases != _SEND else None

    def dispatch_args(self, x: Any = None, topk_idx: Any = None, topk_weights: Any = None,
                      out: Rows | Outputs | None = None, *,
                      phases: LlPhases = LlPhases.SEND_AND_RECEIVE,
                      total_rows_per_expert: Any = None, waited_ns: Any = None,
                      expert_signals: Any = None) -> abi.LlDispatchArgs:
        """Checks the arguments of dispatch(), with its shapes and dtypes ([num_tokens, hidden]
        rows), and returns them for run_dispatch()."""
        new_args = self._new_dispatch.get(phases)
        args = new_args() if new_args else abi.LlDispatchArgs(phases=phases)
        if phases != _RECEIVE:
            self._send(args, x, topk_idx, topk_weights)
        if phases != _SEND:
            self._receive(args, out, total_rows_per_expert, waited_ns)
        if expert_signals is not None:
            args.expert_signals = self.ep.comm.address_of(
                expert_signals, "expert_signals", ("int64", "uint64"), self._per_expert,
                writable=True)
        return args

    def run_dispatch(self, args: abi.LlDispatchArgs, stream: Stream | None, *used: Any) -> None:
        """used: the arrays whose addresses args has."""
        self.ep.comm.enqueue(lib.weft_ll_dispatch, self._native, args, stream, *used)
        if args.phases != _RECEIVE:
            self._tokens.append(args.num_tokens)

    def check(self, args: abi.LlDispatchArgs | abi.LlCombineArgs, stream: Stream | None = None
              ) -> None:
        """Raises the error that args would cause as the next operation of their kind. Runs
        nothing."""
        function = lib.weft_ll_dispatch if isinstance(args, abi.LlDispatchArgs) \
            else lib.weft_ll_combine
        args.call = LlCall.CHECK
        try:
            self.ep.comm.enqueue(function, self._native, args, stream)
        finally:
            args.call = LlCall.RUN

    def _send(self, args: abi.LlDispatchArgs, x: Any, topk_idx: Any, topk_weights: Any) -> None:
        are_known, num_tokens, index_type = self._sent
        if are_known(x, topk_idx):
            args.x, args.topk_idx = x.data_ptr(), topk_idx.data_ptr()
        else:
            num_tokens = arrays.num_rows(x)
            address_of = self.ep.comm.address_of
            args.x = address_of(x, "x", self._dtypes, (num_tokens, self._hidden))
            args.topk_idx = address_of(topk_idx, "topk_idx", _INDEX_TYPES,
                                       (num_tokens, self._num_topk))
            index_type = arrays.index_type_of(topk_idx)
            self._sent = arrays.recogniser(self._cuda_device, x, topk_idx), num_tokens, index_type
        args.num_tokens, args.index_type = num_tokens, index_type
        if topk_weights is not None:
            args.topk_weights = self._weights(topk_weights, num_tokens)

    def _receive(self, args: abi.LlDispatchArgs, out: Rows | Outputs, total: Any,
                 waited_ns: Any) -> None:
        if not isinstance(out, Outputs):
            self._receive_to(args, out)
        elif out.plan.maker is self._shapes:
            out.fill(args)
            args.expert_capacity = out.plan.expert_capacity
            if args.scale_column_bytes:
                args.scale_column_bytes = 4 * out.plan.expert_capacity
        else:
            raise InvalidArgumentError("out was made by another LowLatency")
        if total is not None:
            args.total_rows_per_expert = self._total(total)
        if waited_ns is not None:
            args.waited_ns = self._waits(waited_ns)

    def _receive_to(self, args: abi.LlDispatchArgs, out: Rows) -> None:
        """Arrays that the caller has allocated."""
        for name, array_name, shape, dtypes in self._outputs:
            array = getattr(out, name)
            if array is None and name != "rows":
                continue
            if name == "scales" and self._scale_columns:
                array = array.swapaxes(1, 2)
            setattr(args, name, self.ep.comm.address_of(array, array_name, dtypes, shape,
                                                        writable=True))

    def _total(self, array: Any) -> int | None:
        if self._is_like_total(array):
            return array.data_ptr()
        address = self.ep.comm.address_of(array, "total_rows_per_expert", ("int32",),
                                          self._per_expert, writable=True)
        self._is_like_total = arrays.recogniser(self._cuda_device, array)
        return address

    def _waits(self, array: Any) -> int | None:
        return self.ep.comm.address_of(array, "waited_ns", ("int64",), self._per_rank,
                                       writable=True)

    def _weights(self, array: Any, num_tokens: int) -> int | None:
        return self.ep.comm.address_of(array, "topk_weights", ("float32",),
                                       (num_tokens, self._num_topk))

    def _shapes_of_outputs(self, capacity: int) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shapes of outputs in memory, with room for `capacity` rows of an expert."""
        num_ranks = self.ep.comm.num_ranks
        shapes = {"num_rows_per_rank": ((num_ranks,), "int32")}
        if self._config.on_missing == LlOnMissing.MASK:
            shapes["missing_ranks"] = ((num_ranks,), "int32")
        if self._by_expert:
            experts = self.sizes.num_local_experts
            shapes |= {"rows": ((experts, capacity, self._config.hidden), self._row_dtype),
                       "num_rows_per_expert": ((experts,), "int32"),
                       "src_tokens": ((experts, capacity), "int32"),
                       "row_ranges": ((experts, num_ranks), "int64")}
            if self._config.quantisation.dtype != Dtype.NONE:
                shapes["scales"] = self._shape_of_scales(experts, capacity)
        return shapes

    def _shape_of_scales(self, experts: int, capacity: int) -> tuple[tuple[int, ...], str]:
        groups, is_byte = self._num_groups(), self._config.quantisation.scale == ScaleKind.UE8M0
        if not self._scale_columns:
            return (experts, capacity, groups), "uint8" if is_byte else "float32"
        return (experts, (groups + 3) // 4 if is_byte else groups, capacity), \
            "int32" if is_byte else "float32"

    def _num_groups(self) -> int:
        config = self._config
        return config.hidden // (config.quantisation.group_elements or config.hidden)

    def empty_rows(self, like: Any, leave_out: Sequence[str] = ()) -> Rows:
        """Arrays for a dispatch's outputs, of the library and device of `like`. leave_out: names of
        counts that nobody asks for."""
        made = {name: None if name in leave_out else arrays.empty(shape, like, dtype)
                for name, (shape, dtype) in self._shapes.items()}
        if self._scale_columns and "scales" in made:
            made["scales"] = made["scales"].swapaxes(1, 2)
        return Rows(**made)

    def output_maker(self, leave_out: tuple[str, ...] = (), expert_capacity: int = 0
                     ) -> Callable[[], Outputs]:
        """Returns a function that allocates empty_rows()'s outputs as tensors, in less time of the
        host. Its result has rows and scales; make(name) of the result makes the other outputs.
        expert_capacity: C, if it is less than that of the weft_ll."""
        capacity = expert_capacity or self.sizes.expert_capacity
        plan = Plan(self.ep.comm.cuda_device, self._shapes_of_outputs(capacity), leave_out,
                    has_scale_columns=self._scale_columns)
        plan.maker, plan.expert_capacity = self._shapes, capacity
        return partial(Outputs, plan)

    def slots(self, like: Any) -> Slots:
        """Where rows are, by rank, as arrays of the library of `like`; the same ones every time."""
        slots = query(abi.LlSlots, lib.weft_ll_query_slots, self._native.pointer())
        comm, config = self.ep.comm, self._config

        def both(addresses: Any, count: int, dtype: str) -> tuple[Any, ...]:
            shape = (comm.num_ranks, config.max_tokens, count * arrays.item_bytes(dtype))
            strides = (slots.source_stride_bytes, slots.row_stride_bytes, 1)
            return tuple(
                arrays.as_array(
                    arrays.Block(comm._native, address, shape, comm.cuda_device, strides=strides),
                    arrays.dtype_like(like, dtype))
                for address in addresses if address)

        scale_dtype = "uint8" if config.quantisation.scale == ScaleKind.UE8M0 else "float32"
        return Slots(
            half=comm.array_at(slots.half, 4, (1,), arrays.dtype_like(like, "int32")),
            x=both(slots.x, config.hidden, self._row_dtype),
            scales=both(slots.scales, self._num_groups(), scale_dtype),
            experts=both(slots.experts, config.num_topk, "int32"),
            topk_weights=both(slots.topk_weights, config.num_topk, "float32"),
            src_token=both(slots.src_token, 1, "int32"))

    # ------------------------------------------------------------ combine

    def combine(self, x: Any = None, out: Any = None, *, topk_weights: Any = None,
                phases: LlPhases = LlPhases.SEND_AND_RECEIVE, keep: bool = False,
                missing_ranks: Any = None, waited_ns: Any = None,
                expert_capacity: int = 0, signals: RowSignals | None = None,
                stream: Stream | None = None) -> Any:
        """The sum of each token's rows of the oldest result, which it ends unless keep. Collective.

        To send: x, what the experts have made of the rows: by expert [L, C, hidden], by rank
        [R, max_tokens, hidden], weights applied; rows may lie apart. To receive: out [N, hidden],
        allocated if it is not given; missing_ranks [R] of int32, which gets 1 for each masked rank;
        waited_ns as in dispatch. topk_weights [N, K]:
        to receive with LlAnswer.ROWS, to send with LlAnswer.SUMS_WEIGHED_LATE. expert_capacity: C
        of the dispatch, if that was not the weft_ll's. signals: to send, if x is not finished yet;
        they last until combine has ended. Returns out, None when only sending.
        """
        result = 0 if phases != _SEND else sum(self._ends)  # the number of older ones
        num_tokens = self._tokens[result] if result < len(self._tokens) else 0
        if out is None and phases != _SEND:
            out = arrays.empty((num_tokens, self._hidden), self._like, self._dtype)
        args = self.combine_args(x, out, num_tokens=num_tokens, topk_weights=topk_weights,
                                 phases=phases, keep=keep, missing_ranks=missing_ranks,
                                 waited_ns=waited_ns, expert_capacity=expert_capacity,
                                 signals=signals)
        self.run_combine(args, stream, x, out, topk_weights, missing_ranks, waited_ns,
                         signals and signals.words)
        return out if phases != _SEND else None

    def combine_args(self, x: Any = None, out: Any = None, *, num_tokens: int,
                     topk_weights: Any = None, phases: LlPhases = LlPhases.SEND_AND_RECEIVE,
                     keep: bool = False, missing_ranks: Any = None, waited_ns: Any = None,
                     expert_capacity: int = 0, signals: RowSignals | None = None
                     ) -> abi.LlCombineArgs:
        """Checks the arguments of combine(), with its shapes and dtypes (out is [num_tokens,
        hidden]), and returns them for run_combine()."""
        new_args = self._new_combine.get(phases)
        args = new_args() if new_args else abi.LlCombineArgs(phases=phases)
        if keep and phases != _RECEIVE:
            args.keep = 1
        if phases != _RECEIVE:
            args.expert_capacity = expert_capacity
        are_known, known_tokens, known_capacity, stride_bytes = self._combined
        if phases == _BOTH and num_tokens == known_tokens and expert_capacity == known_capacity \
                and are_known(x, out, topk_weights):
            args.x, args.x_stride_bytes, args.out = x.data_ptr(), stride_bytes, out.data_ptr()
            args.topk_weights = topk_weights.data_ptr()
        else:
            self._look_at_combined(args, num_tokens, x, out, topk_weights)
        if missing_ranks is not None and phases != _SEND:
            args.missing_ranks = self._mask(missing_ranks, writable=True)
        if waited_ns is not None and phases != _SEND:
            args.waited_ns = self._waits(waited_ns)
        if signals is not None and phases != _RECEIVE:
            self._await(args, signals)
        return args

    def _await(self, args: abi.LlCombineArgs, signals: RowSignals) -> None:
        capacity = args.expert_capacity or self.sizes.expert_capacity
        args.signal_value = abi.whole("signals.value", signals.value, ctypes.c_uint32)
        args.rows_per_signal = abi.whole("signals.rows", signals.rows, ctypes.c_int32)
        num_words = -(-capacity // signals.rows) if signals.rows > 0 else 1
        args.row_signals = self.ep.comm.address_of(
            signals.words, "signals.words", ("int32", "uint32"),
            (self.sizes.num_local_experts, num_words))

    def run_combine(self, args: abi.LlCombineArgs, stream: Stream | None, *used: Any) -> None:
        """used: the arrays whose addresses args has."""
        self.ep.comm.enqueue(lib.weft_ll_combine, self._native, args, stream, *used)
        if args.phases != _RECEIVE:
            self._ends.append(not args.keep)
        if args.phases != _SEND and self._ends and self._ends.popleft() and self._tokens:
            self._tokens.popleft()

    def _look_at_combined(self, args: abi.LlCombineArgs, num_tokens: int, x: Any, out: Any,
                          topk_weights: Any) -> None:
        if args.phases != _RECEIVE:
            self._answer(args, x)
        if topk_weights is not None:
            args.topk_weights = self._weights(topk_weights, num_tokens)
        if args.phases == _SEND:
            return
        args.out = self.ep.comm.address_of(out, "out", self._dtypes, (num_tokens, self._hidden),
                                           writable=True)
        if args.phases == _BOTH:
            self._combined = (arrays.recogniser(self._cuda_device, x, out, topk_weights),
                              num_tokens, args.expert_capacity, args.x_stride_bytes)

    def _shape_of_answers(self, args: abi.LlCombineArgs) -> tuple[int, ...]:
        """The shape of x of combine()."""
        if self._by_expert:
            return (self.sizes.num_local_experts,
                    args.expert_capacity or self.sizes.expert_capacity, self._hidden)
        return (self.ep.comm.num_ranks, self._config.max_tokens, self._hidden)

    def _answer(self, args: abi.LlCombineArgs, x: Any) -> None:
        wanted = self._shape_of_answers(args)
        if arrays.is_tensor(x) and x.is_contiguous():
            args.x = self.ep.comm.address_of(x, "x", self._dtypes, wanted)
            return
        seen = self.ep.comm.view(x, "x", dense=False)
        arrays.require(seen, "x", self._dtypes, wanted)
        args.x = seen.address
        if seen.strides is not None:
            args.x_stride_bytes = seen.strides[1]
            if seen.strides[2] != seen.item_bytes or \
                    seen.strides[0] != seen.strides[1] * wanted[1] or \
                    seen.strides[1] < seen.item_bytes * seen.shape[2]:
                raise InvalidArgumentError(f"x has strides of {seen.strides} bytes; rows must be "
                                           "contiguous, and all as far apart")

    def release(self, stream: Stream | None = None) -> None:
        """Ends the oldest result without a combine, or after one with keep. Collective."""
        self.ep.comm.enqueue(lib.weft_ll_release, self._native, (), stream)
        if self._tokens:
            self._tokens.popleft()

    # ------------------------------------------------------------ masks

    def mask(self, mask: Any, stream: Stream | None = None) -> None:
        """Goes on without the ranks whose entry of mask [R] (int32) is not 0. Local."""
        self._enqueue_mask(lib.weft_ll_mask, self._mask(mask), (), stream, mask)

    def query_mask(self, mask: Any, stream: Stream | None = None) -> Any:
        """Writes 1 for each masked rank to mask [R] (int32), 0 for others. Local."""
        self._enqueue_mask(lib.weft_ll_query_mask, self._mask(mask, writable=True), (), stream,
                           mask)
        return mask

    def unmask(self, mask: Any, epoch: int, stream: Stream | None = None) -> None:
        """Lets the ranks whose entry of mask [R] (int32) is 0 come back. Collective among them,
        with the same epoch, which grows from call to call."""
        self._enqueue_mask(lib.weft_ll_unmask, self._mask(mask), (epoch,), stream, mask)
        self._tokens.clear()  # results are dropped
        self._ends.clear()

    def _mask(self, mask: Any, *, writable: bool = False) -> int | None:
        return self.ep.comm.address_of(mask, "mask", ("int32",), (self.ep.comm.num_ranks,),
                                       writable=writable)

    def _enqueue_mask(self, function, address: int | None, more: tuple[int, ...],
                      stream: Stream | None, mask: Any) -> None:
        self.ep.comm.enqueue(function, self._native, (address, *more), stream, mask)
