# SPDX-License-Identifier: MIT
"""Expert parallelism: layout, notify, dispatch and combine of tokens."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Sequence

from . import abi, arrays
from .abi import Dtype, EpOrder, ScaleKind
from .communicator import Arena, Communicator
from .dispatches import Dispatch, Narrowing, Output
from .expansion import Expansion, as_tuple
from .library import InvalidArgumentError, check, lib, query
from .objects import Native, Object, call
from .streams import Mark, Stream


class Counts(NamedTuple):
    """What comes to this rank. L is the number of its experts.

    - num_recv_tokens: rows
    - num_recv_per_rank: [R] rows by source
    - num_recv_per_expert: [L] selections, rounded up to expert_alignment
    - max_recv_tokens: the most rows of any rank
    - num_relayed_tokens: tokens of other nodes that this rank passes on to ranks of its own
    - tags: [R] the tags that the ranks gave to layout()
    - num_selections_per_expert: [L] as num_recv_per_expert, not rounded
    - first_row_per_expert: [L] where each one's rows begin in the expanded layout
    - num_expanded_rows: rows of that layout
    """

    num_recv_tokens: int
    num_recv_per_rank: list[int]
    num_recv_per_expert: list[int]
    max_recv_tokens: int
    num_relayed_tokens: int
    tags: list[int]
    num_selections_per_expert: list[int]
    first_row_per_expert: list[int]
    num_expanded_rows: int


class DeviceCounts(NamedTuple):
    """The same where operations run, int32. They belong to the handle and hold once its notify()
    has passed.

    - num_recv_tokens: [1]
    - num_recv_per_rank: [R]
    - num_recv_per_expert: [L]
    - recv_rank_ends: [R] the row after the last one of each source
    - num_selections_per_expert: [L]
    - first_row_per_expert: [L]
    - num_expanded_rows: [1]
    """

    num_recv_tokens: Any
    num_recv_per_rank: Any
    num_recv_per_expert: Any
    recv_rank_ends: Any
    num_selections_per_expert: Any
    first_row_per_expert: Any
    num_expanded_rows: Any


class Layout(NamedTuple):
    """Which tokens go where; arrays like topk_idx.

    - num_tokens_per_rank: [R] int32, distinct tokens
    - num_tokens_per_node: [nodes] int32, distinct tokens
    - num_tokens_per_expert: [experts] int32, selections
    - is_token_in_rank: [N, R] uint8, 0 or 1
    """

    num_tokens_per_rank: Any
    num_tokens_per_node: Any
    num_tokens_per_expert: Any
    is_token_in_rank: Any


class Received(NamedTuple):
    """What a dispatch delivers, in (source rank, token) order. C is the capacity.

    - planes: each [C, ...]
    - topk_idx: [C, K] local expert, or -1
    - topk_weights: [C, K] float32, 0 where topk_idx is -1
    - src_token: [C] int32, index of the token at its source
    """

    planes: tuple[Any, ...]
    topk_idx: Any = None
    topk_weights: Any = None
    src_token: Any = None

    @property
    def x(self) -> Any:
        """The first plane."""
        return self.planes[0]


class ExpertParallel(Object):
    """Experts of one or more layers, placed on the ranks of a communicator. Collective.

    num_experts: spread evenly, unless expert_ranks says where each is: a sequence of the ranks of
    each expert, more than one for replicas. Further settings are those of weft_ep_config; with
    staging_bytes outputs of dispatch() and inputs of combine() may be any arrays, else only such
    as Communicator.is_direct() says: of the heap, or registered. combine_wire, a Dtype, is what
    combine() rounds a node's sum to between nodes.
    """

    def __init__(self, comm: Communicator, num_experts: int, *,
                 expert_ranks: Sequence[Sequence[int]] | None = None, **config: int):
        settings = abi.EpConfig(num_experts=num_experts, **config)
        if expert_ranks is not None:
            if len(expert_ranks) != num_experts:
                raise InvalidArgumentError(
                    f"expert_ranks has {len(expert_ranks)} elements, num_experts is {num_experts}")
            offsets = (ctypes.c_int32 * (num_experts + 1))()
            for expert, ranks in enumerate(expert_ranks):
                offsets[expert + 1] = offsets[expert] + len(ranks)
            listed = [rank for ranks in expert_ranks for rank in ranks]
            if not all(0 <= rank < comm.num_ranks for rank in listed):
                raise InvalidArgumentError(f"expert_ranks names ranks from {min(listed)} to "
                                           f"{max(listed)}, allowed are 0..{comm.num_ranks - 1}")
            flat = (ctypes.c_int32 * len(listed))(*listed)
            settings.expert_offsets = ctypes.addressof(offsets)
            settings.expert_ranks = ctypes.addressof(flat)
        made = ctypes.c_void_p()
        comm.call(lib.weft_ep_create, comm._native.pointer(), ctypes.byref(settings),
                  ctypes.byref(made))
        self._native = Native("ep", made.value, comm._native, ends_when_dropped=False)
        self.comm = comm
        self.num_experts = num_experts
        self.staging_bytes: int = settings.staging_bytes
        self.num_nodes = 1 + max(comm.node(rank) for rank in range(comm.num_ranks))

    def _about(self) -> str:
        return f"of {self.num_experts} experts on {self.comm}"

    def experts_of(self, rank: int) -> list[int]:
        """The experts of a rank; element i has local id i."""
        native = self._native.pointer()
        return [lib.weft_ep_global_expert(native, rank, i)
                for i in range(lib.weft_ep_num_local_experts(native, rank))]

    def sizes(self, plane_row_bytes: Sequence[int], max_tokens_per_rank: int, num_topk: int, *,
              index_dtype: Any = None, with_src_token: bool = False) -> abi.EpSizes:
        """How much memory batches of a size need at worst. index_dtype: with top-k data, int32 or
        int64."""
        rows = (ctypes.c_uint64 * len(plane_row_bytes))(*(
            abi.whole("plane_row_bytes", num_bytes, ctypes.c_uint64)
            for num_bytes in plane_row_bytes))
        index_type = 0 if index_dtype is None else \
            arrays.dtype_value(arrays.dtype_name(index_dtype))
        args = abi.EpSizeArgs(
            plane_row_bytes=ctypes.addressof(rows), num_planes=len(plane_row_bytes),
            max_tokens_per_rank=max_tokens_per_rank, num_topk=num_topk, index_type=index_type,
            with_topk=int(index_dtype is not None), with_src_token=int(with_src_token))
        return query(abi.EpSizes, lib.weft_ep_query_sizes, self._native.pointer(),
                     ctypes.byref(args))

    def move_experts(self, to: ExpertParallel, weights: Sequence[Any], moved: Sequence[Any],
                     stream: Stream | None = None) -> None:
        """The weights of experts go from their places here to those in `to`. weights and moved:
        arrays of heap_empty(), each [L, ...] of any dtype; those of `moved` are like those of
        weights. L is at least the most experts of any rank. Row i is of local expert i. Collective,
        on a stream."""
        if len(weights) != len(moved):
            raise InvalidArgumentError(f"moved has {len(moved)} arrays, weights has {len(weights)}")
        planes = (abi.Plane * len(weights))()
        for i, (old, new, plane) in enumerate(zip(weights, moved, planes)):
            seen = self.comm.view(old, f"weights[{i}]")
            plane.size = ctypes.sizeof(abi.Plane)
            plane.src, plane.row_bytes = seen.address, seen.row_bytes
            plane.dst = self.comm.address_of(new, f"moved[{i}]", (seen.dtype,),
                                             (None, *seen.shape[1:]), writable=True)
        self.comm.enqueue(lib.weft_ep_move_experts, self._native,
                          (to._native.pointer(), planes, len(planes)), stream, to._native,
                          weights, moved)

    def handle(self, num_topk: int, *, max_tokens: int = 0, expert_alignment: int = 0,
               num_experts: int = 0, order: EpOrder = EpOrder.BY_RANK) -> Handle:
        """A handle for batches of up to max_tokens tokens (0: any number), each of which chooses
        num_topk experts. order: in which combine() adds the ranks' rows of a token."""
        return Handle(self, abi.EpHandleConfig(
            max_tokens=max_tokens, num_topk=num_topk, expert_alignment=expert_alignment,
            num_experts=num_experts, order=order))


class Handle(Expansion):
    """The routing of one batch. layout() and notify() fill it; dispatch() and combine() use it, any
    number of times. N is the number of this rank's tokens, K num_topk, R the number of ranks."""

    def __init__(self, ep: ExpertParallel, settings: abi.EpHandleConfig):
        made = ctypes.c_void_p()
        ep.comm.call(lib.weft_ep_handle_create, ep._native.pointer(), ctypes.byref(settings),
                     ctypes.byref(made), using=(ep._native,))
        self._native = Native("ep_handle", made.value, ep._native)
        self.ep = ep
        self.num_topk: int = settings.num_topk
        self.num_experts: int = settings.num_experts or ep.num_experts
        self._experts_of_ep = settings.num_experts == 0
        self.num_tokens: int | None = None  # since layout()
        self._notified: Mark | None = None

    def _about(self) -> str:
        state = "no layout yet" if self.num_tokens is None else f"{self.num_tokens} tokens"
        return f"top-{self.num_topk} of {self.num_experts} experts, {state}, of {self.ep}"

    # ------------------------------------------------------------ routing

    def layout(self, topk_idx: Any, stream: Stream | None = None, *,
               with_tables: bool = False, tag: int = 0) -> Layout | None:
        """Which token goes to which rank. topk_idx [N, K] of int32 or int64; ids that are no
        expert's, as -1, are ignored. with_tables: returns the tables of Layout. tag: any int32;
        all ranks find it in their Counts. Local."""
        num_tokens = arrays.num_rows(topk_idx)
        args = abi.EpLayoutArgs(
            num_tokens=num_tokens, tag=tag,
            topk_idx=self._topk(topk_idx, "topk_idx", ("int32", "int64"), num_tokens))
        args.index_type = arrays.index_type_of(topk_idx)
        tables = None
        if with_tables:
            num_ranks = self.ep.comm.num_ranks
            tables = Layout(*(arrays.empty(shape, topk_idx, "int32") for shape in (
                (num_ranks,), (self.ep.num_nodes,), (self.num_experts,))),
                arrays.empty((num_tokens, num_ranks), topk_idx, "uint8"))
            for field, array in zip(Layout._fields, tables):
                setattr(args, field, self._view(array, field).address)
        self._layout(args, stream, topk_idx, tables)
        return tables

    def layout_by_table(self, tokens_to_ranks: Any, selections_per_expert: Any,
                        stream: Stream | None = None, *, tag: int = 0) -> None:
        """The same by a table: tokens_to_ranks [N, R] of uint8 or bool, selections_per_expert
        [experts] of int32. Local."""
        address_of = self.ep.comm.address_of
        num_tokens, num_counts = map(arrays.num_rows, (tokens_to_ranks, selections_per_expert))
        args = abi.EpLayoutArgs(
            num_tokens=num_tokens, tag=tag,
            tokens_to_ranks=address_of(tokens_to_ranks, "tokens_to_ranks", ("uint8", "bool"),
                                       (num_tokens, self.ep.comm.num_ranks)),
            selections_per_expert=address_of(selections_per_expert, "selections_per_expert",
                                             ("int32",), (num_counts,)))
        if num_counts < self.num_experts:  # with replicas there are more
            raise InvalidArgumentError(f"selections_per_expert has {num_counts} elements; "
                                       f"there are {self.num_experts} experts")
        self._layout(args, stream, tokens_to_ranks, selections_per_expert)

    def _layout(self, args: abi.EpLayoutArgs, stream: Stream | None, *used: Any) -> None:
        self.num_tokens = None
        self.ep.comm.enqueue(lib.weft_ep_layout, self._native, args, stream, *used)
        self.num_tokens = args.num_tokens

    def notify(self, stream: Stream | None = None) -> None:
        """The ranks exchange counts; then every token has its rows. Collective."""
        self.ep.comm.enqueue(lib.weft_ep_notify, self._native, (), stream)
        self._notified = stream.mark() if stream else None

    def wait_counts(self) -> Counts:
        """Waits, on the host, for the last notify()."""
        counts = self.wait_raw_counts()
        return Counts(
            counts.num_recv_tokens,
            ints_at(counts.num_recv_per_rank, self.ep.comm.num_ranks),
            ints_at(counts.num_recv_per_expert, counts.num_local_experts),
            counts.max_recv_tokens, counts.num_relayed_tokens,
            ints_at(counts.tags, self.ep.comm.num_ranks),
            ints_at(counts.num_selections_per_expert, counts.num_local_experts),
            ints_at(counts.first_row_per_expert, counts.num_local_experts),
            counts.num_expanded_rows)

    def wait_raw_counts(self) -> abi.EpCounts:
        """The same as weft.h has it: lists by ints_at(), until the next notify(), take the host
        time while the GPU may have nothing to do."""
        counts = abi.EpCounts()
        call(lib.weft_ep_wait_counts, self._native.pointer(), ctypes.byref(counts),
             using=(self._native,), comm=self.ep.comm._native)
        if self._notified:
            self._notified.passed()
        return counts

    def device_counts(self, num_local_experts: int, like: Any) -> DeviceCounts:
        """The counts as arrays of the library of `like`, for work on the stream; of experts the
        first num_local_experts."""
        counts, comm = abi.EpDeviceCounts(), self.ep.comm
        if not 0 <= num_local_experts <= self._num_local_experts():
            raise InvalidArgumentError(f"num_local_experts is {num_local_experts}, allowed are "
                                       f"0..{self._num_local_experts()}")
        check(lib.weft_ep_query_device_counts(self._native.pointer(), ctypes.byref(counts)))
        dtype = arrays.dtype_like(like, "int32")
        return DeviceCounts(*(
            comm.array_at(getattr(counts, field), 4 * length, (length,), dtype)
            for field, length in (
                ("num_recv_tokens", 1), ("num_recv_per_rank", comm.num_ranks),
                ("num_recv_per_expert", num_local_experts), ("recv_rank_ends", comm.num_ranks),
                ("num_selections_per_expert", num_local_experts),
                ("first_row_per_expert", num_local_experts), ("num_expanded_rows", 1))))

    def _num_local_experts(self) -> int:
        comm = self.ep.comm
        if self._experts_of_ep:
            return lib.weft_ep_num_local_experts(self.ep._native.pointer(), comm.rank)
        first, end = (self.num_experts * r // comm.num_ranks for r in (comm.rank, comm.rank + 1))
        return end - first

    # ------------------------------------------------------------ rows

    def dispatch(self, x: Any, out: Any = None, *, arena: Arena | None = None,
                 capacity: int | None = None, topk_idx: Any = None, topk_weights: Any = None,
                 recv_topk_idx: Any = None, recv_topk_weights: Any = None,
                 recv_src_token: Any = None, with_src_token: bool = False, num_blocks: int = 0,
                 narrow: Dtype | None = None, group: int = 128,
                 scale: ScaleKind = ScaleKind.FP32, stream: Stream | None = None) -> Received:
        """Delivers every token's row once to each rank that has one of its experts. Collective.

        x: [N, ...] of any type, or several such planes; a plane's rows may lie apart. Outputs have
        `capacity` rows: they are given (out, for each plane, and recv_*), or allocated, in the
        arena if there is one. capacity: by default what the outputs have, or wait_counts() says.
        topk_idx, topk_weights [N, K]: carried along, the first of int32 or int64, the second of
        float32. with_src_token: allocates recv_src_token.

        narrow: the first plane, [N, hidden] of bfloat16, float16 or float32, is quantised on its
        way, as by quantise(). It is delivered as rows of float8_e4m3fn or int8; their scales are a
        plane more, the last one (of out, too).
        """
        planes, outs = as_tuple(x), as_tuple(out)
        num_outs = len(planes) + (narrow is not None)
        if outs and len(outs) != num_outs:
            raise InvalidArgumentError(f"out has {len(outs)} planes, {num_outs} are delivered")
        if capacity is None:
            capacity = outs[0].shape[0] if outs else \
                self.wait_raw_counts().num_recv_tokens
        capacity = abi.whole("capacity", capacity, ctypes.c_int32)
        dispatch = Dispatch(
            self, planes, topk_idx, topk_weights, num_blocks=num_blocks,
            with_src_token=with_src_token or recv_src_token is not None,
            narrowing=None if narrow is None else Narrowing(Dtype(narrow), group, scale))
        others = {"recv_topk_idx": recv_topk_idx, "recv_topk_weights": recv_topk_weights,
                  "recv_src_token": recv_src_token}
        names = [output.field for output in dispatch.outputs[num_outs:]]
        given = *(outs or (None,) * num_outs), *(others[name] for name in names)
        made = [self._allocate(output, capacity, arena) if array is None else array
                for output, array in zip(dispatch.outputs, given)]
        addresses = [self._address_of(output, capacity, array)
                     for output, array in zip(dispatch.outputs, made)]
        dispatch.enqueue(capacity, addresses, stream, made)
        others.update(zip(names, made[num_outs:]))
        return Received(tuple(made[:num_outs]), *others.values())

    def _allocate(self, output: Output, capacity: int, arena: Arena | None) -> Any:
        """An output: from the arena, or any, of the library of its input."""
        shape = (capacity, *output.row_shape)
        if arena is not None:
            return arena.empty(shape, arrays.dtype_like(output.like, output.dtype))
        if self.ep.staging_bytes == 0:
            raise InvalidArgumentError(f"no output for {output.field} is given; then arena must "
                                       "be, or staging_bytes of the ExpertParallel")
        return arrays.empty(shape, output.like, output.dtype)

    def _address_of(self, output: Output, capacity: int, array: Any) -> int | None:
        return self.ep.comm.address_of(array, output.field, (output.dtype,),
                                       (capacity, *output.row_shape), writable=True)

    def combine(self, x: Any, out: Any = None, *, bias: Sequence[Any] = (),
                topk_weights: Any = None, out_topk_weights: Any = None, dtype: Any = None,
                num_blocks: int = 0, stream: Stream | None = None) -> Any:
        """The sum of each token's rows of all ranks. Collective.

        x [C, hidden] of bfloat16, float16 or float32: row i answers row i of the dispatch. out
        [N, hidden], allocated like x if it is not given. bias: up to two arrays [N, hidden] that
        are added. topk_weights [C, K] of float32 are summed likewise. Returns out, or (out,
        out_topk_weights) with topk_weights.
        """
        seen = self._view(x, "x")
        if len(seen.shape) != 2:
            arrays.require(seen, "x", (), (None, None))
        shape = (self.known_tokens(), seen.shape[1])
        if out is None:
            out = arrays.empty(shape, x)
        bias = tuple(array for array in bias if array is not None)
        if len(bias) > 2:
            raise InvalidArgumentError(f"bias has {len(bias)} arrays; at most 2 are allowed")
        args = abi.EpCombineArgs(x=seen.address, hidden=seen.shape[1], capacity=seen.shape[0],
                                 dtype=arrays.weft_dtype(seen, dtype, "x"), num_blocks=num_blocks)
        address_of = self.ep.comm.address_of
        args.out = address_of(out, "out", (seen.dtype,), shape, writable=True)
        for i, array in enumerate(bias):
            args.bias[i] = address_of(array, f"bias[{i}]", (seen.dtype,), shape)
        if topk_weights is not None:
            args.topk_weights = self._topk(topk_weights, "topk_weights", ("float32",),
                                           seen.shape[0])
            if out_topk_weights is None:
                out_topk_weights = arrays.empty((shape[0], self.num_topk), topk_weights)
            args.out_topk_weights = self._topk(out_topk_weights, "out_topk_weights", ("float32",),
                                               shape[0], writable=True)
        self.ep.comm.enqueue(lib.weft_ep_combine, self._native, args, stream, x, out, bias,
                             topk_weights, out_topk_weights)
        return out if topk_weights is None else (out, out_topk_weights)

    def check(self) -> None:
        """After the stream was synchronised: CapacityError, if a dispatch or expand since the last
        notify() had to drop rows meant for this rank."""
        call(lib.weft_ep_check, self._native.pointer(), None, using=(self._native,))

    # ------------------------------------------------------------ checks

    def _view(self, array: Any, name: str, **wanted: bool) -> arrays.View:
        return self.ep.comm.view(array, name, **wanted)

    def known_tokens(self) -> int:
        """N, which layout() has told."""
        if self.num_tokens is None:
            raise InvalidArgumentError("the handle has no routing: layout() comes first")
        return self.num_tokens

    def _topk(self, array: Any, name: str, dtypes: tuple[str, ...], num_rows: int, *,
              writable: bool = False) -> int | None:
        return self.ep.comm.address_of(array, name, dtypes, (num_rows, self.num_topk),
                                       writable=writable)


def ints_at(address: int | None, count: int) -> list[int]:
    """Of a list of weft_ep_counts."""
    return (ctypes.c_int32 * count).from_address(address)[:] if count else []
