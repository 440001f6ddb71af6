# SPDX-License-Identifier: MIT
"""The expanded layout: rows of a dispatch packed by local expert, and their sums for combine."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, NamedTuple

from . import abi, arrays
from .library import InvalidArgumentError, lib
from .objects import Object

if TYPE_CHECKING:
    from .expert_parallel import ExpertParallel
    from .streams import Stream


class Expanded(NamedTuple):
    """Rows packed by local expert, as Counts tells. C: rows of the dispatch; E: expanded rows.

    - planes: each [E, ...]
    - choice_rows: [C, K] int32, the expanded row of each choice, or -1
    - row_weights: [E] float32, 0 where there is no row
    - src_rows: [E] int32, the row of the dispatch, or -1
    """

    planes: tuple[Any, ...]
    choice_rows: Any
    row_weights: Any = None
    src_rows: Any = None

    @property
    def x(self) -> Any:
        """The first plane."""
        return self.planes[0]


class Expansion(Object):
    """What a Handle does with rows that have come, on this rank alone."""

    ep: ExpertParallel
    num_topk: int

    def expand(self, planes: Any, out: Any = None, *, topk_idx: Any = None, choice_rows: Any = None,
               topk_weights: Any = None, row_weights: Any = None, src_rows: Any = None,
               with_src_rows: bool = False, capacity: int | None = None, zero_gaps: bool = False,
               num_blocks: int = 0, stream: Stream | None = None) -> Expanded:
        """From a row for each token to one for each (token, local expert). Local.

        planes: one or more of those that dispatch() delivered, [C, ...] of any type. topk_idx,
        topk_weights [C, K]: what it delivered, too. In place of topk_idx, choice_rows [C, K] of an
        expand() of the same routing: the rows have the same places. Outputs have `capacity` rows:
        they are given (out, for each plane, row_weights, src_rows), or allocated. capacity: by
        default what out has, or wait_counts() says. zero_gaps: rows without a choice, behind those
        of an expert, become zeros; else they are not written.
        """
        planes, outs = as_tuple(planes), as_tuple(out)
        if outs and len(outs) != len(planes):
            raise InvalidArgumentError(f"out has {len(outs)} arrays, planes {len(planes)}")
        if (topk_idx is None) == (choice_rows is None):
            raise InvalidArgumentError("topk_idx and choice_rows: one of them must be given")
        ids = choice_rows if topk_idx is None else topk_idx
        num_rows = arrays.num_rows(ids)
        if capacity is None:
            capacity = outs[0].shape[0] if outs else self.wait_raw_counts().num_expanded_rows
        made = outs or [arrays.empty((capacity, *plane.shape[1:]), plane) for plane in planes]
        args = abi.EpExpandArgs(num_planes=len(planes), capacity=num_rows,
                                expanded_capacity=capacity, gaps=int(zero_gaps),
                                num_blocks=num_blocks)
        listed = (abi.Plane * len(planes))(*(
            self._plane(i, plane, array, num_rows, capacity)
            for i, (plane, array) in enumerate(zip(planes, made))))
        args.planes = ctypes.addressof(listed)
        if topk_idx is not None:
            args.recv_topk_idx = self._topk(topk_idx, "topk_idx", ("int32", "int64"), num_rows)
            args.index_type = arrays.index_type_of(topk_idx)
            choice_rows = arrays.empty((num_rows, self.num_topk), topk_idx, "int32")
        args.choice_rows = self._topk(choice_rows, "choice_rows", ("int32",), num_rows,
                                      writable=topk_idx is not None)
        if topk_weights is not None:
            args.recv_topk_weights = self._topk(topk_weights, "topk_weights", ("float32",),
                                                num_rows)
            row_weights = self._of_rows(args, "row_weights", row_weights, ids, "float32")
        if with_src_rows or src_rows is not None:
            src_rows = self._of_rows(args, "src_rows", src_rows, ids, "int32")
        self.ep.comm.enqueue(lib.weft_ep_expand, self._native, args, stream, planes, made, ids,
                             choice_rows, topk_weights, row_weights, src_rows)
        return Expanded(tuple(made), choice_rows, row_weights, src_rows)

    def reduce(self, rows: Any, choice_rows: Any, out: Any = None, *, row_weights: Any = None,
               topk_weights: Any = None, dtype: Any = None, out_dtype: Any = None,
               num_blocks: int = 0, stream: Stream | None = None) -> Any:
        """From expanded rows back to one for each token: its sum of rows [E, hidden] of bfloat16,
        float16 or float32, in the order of its choices. Local.

        choice_rows [C, K]: of expand(). out [C, hidden] of rows' type, or of float32: out_dtype; it
        is what combine() takes. row_weights [E] of float32 come back as topk_weights [C, K].
        Returns out, or (out, topk_weights) with row_weights.
        """
        seen = self.ep.comm.view(rows, "rows")
        if len(seen.shape) != 2:
            arrays.require(seen, "rows", (), (None, None))
        num_rows = arrays.num_rows(choice_rows)
        sums = seen.dtype if out_dtype is None else arrays.dtype_name(out_dtype)
        if out is None:
            out = arrays.empty((num_rows, seen.shape[1]), rows, sums)
        args = abi.EpReduceArgs(
            rows=seen.address, hidden=seen.shape[1], capacity=num_rows,
            expanded_capacity=seen.shape[0], num_blocks=num_blocks,
            dtype=arrays.weft_dtype(seen, dtype, "rows"),
            choice_rows=self._topk(choice_rows, "choice_rows", ("int32",), num_rows))
        if out_dtype is not None:
            args.out_dtype = arrays.dtype_value(sums)
        address_of = self.ep.comm.address_of
        args.out = address_of(out, "out", (sums,), (num_rows, seen.shape[1]), writable=True)
        if row_weights is not None:
            args.row_weights = address_of(row_weights, "row_weights", ("float32",),
                                          (seen.shape[0],))
            if topk_weights is None:
                topk_weights = arrays.empty((num_rows, self.num_topk), row_weights)
            args.topk_weights = self._topk(topk_weights, "topk_weights", ("float32",), num_rows,
                                           writable=True)
        self.ep.comm.enqueue(lib.weft_ep_reduce, self._native, args, stream, rows, choice_rows, out,
                             row_weights, topk_weights)
        return out if row_weights is None else (out, topk_weights)

    def _plane(self, i: int, plane: Any, out: Any, num_rows: int, capacity: int) -> abi.Plane:
        seen = self.ep.comm.view(plane, f"planes[{i}]", dense=False)
        if not seen.shape or seen.shape[0] != num_rows:
            raise InvalidArgumentError(f"planes[{i}] has shape {seen.shape}; its first dimension "
                                       f"must be {num_rows} rows")
        if seen.strides is not None:
            arrays.check_rows(seen, f"planes[{i}]")
        return abi.Plane(
            src=seen.address, row_bytes=seen.row_bytes,
            src_stride_bytes=seen.strides[0] if seen.strides else 0,
            dst=self.ep.comm.address_of(out, f"out[{i}]", (seen.dtype,),
                                        (capacity, *seen.shape[1:]), writable=True))

    def _of_rows(self, args: abi.EpExpandArgs, name: str, given: Any, like: Any, dtype: str) -> Any:
        array = arrays.empty((args.expanded_capacity,), like, dtype) if given is None else given
        setattr(args, name, self.ep.comm.address_of(array, name, (dtype,),
                                                    (args.expanded_capacity,), writable=True))
        return array


def as_tuple(planes: Any) -> tuple[Any, ...]:
    """Planes [N, ...] of any type, one of them, or None, as a tuple."""
    if planes is None:
        return ()
    return tuple(planes) if isinstance(planes, (tuple, list)) else (planes,)
