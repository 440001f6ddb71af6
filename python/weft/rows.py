# SPDX-License-Identifier: MIT
"""Quantised rows: rows of BF16, FP16 or FP32 as FP8 or INT8, and back."""
from __future__ import annotations

from typing import Any

from . import abi, arrays
from .abi import Dtype, ScaleKind
from .communicator import Communicator
from .library import InvalidArgumentError, lib
from .streams import Stream

_NARROW_NAMES = {Dtype.FP8_E4M3: "float8_e4m3fn", Dtype.INT8: "int8"}


def scale_shape(num_rows: int, hidden: int, group: int, scale: ScaleKind) -> tuple[tuple, str]:
    """Shape and dtype of the scales of rows, side by side."""
    if group < 0:
        raise InvalidArgumentError(f"group is {group}; it must be 0, all of a row, or more")
    if hidden % (group or hidden or 1):
        raise InvalidArgumentError(f"rows have {hidden} columns, not a multiple of {group}")
    return (num_rows, hidden // (group or hidden or 1)), \
        "uint8" if scale == ScaleKind.UE8M0 else "float32"


def narrow_name(narrow: Dtype) -> str:
    """The dtype of arrays of quantised elements."""
    if narrow not in _NARROW_NAMES:
        raise InvalidArgumentError(f"narrow is {narrow!r}; allowed are FP8_E4M3 and INT8")
    return _NARROW_NAMES[narrow]


def quantise(comm: Communicator, src: Any, *, narrow: Dtype = Dtype.FP8_E4M3, group: int = 128,
             scale: ScaleKind = ScaleKind.FP32, dtype: Any = None,
             stream: Stream | None = None) -> tuple[Any, Any]:
    """src [N, hidden], whose rows may lie apart -> (rows, scales).

    rows [N, hidden] of float8_e4m3fn (uint8 in numpy without ml_dtypes) or int8, scales [N, hidden
    / group] of float32, or uint8 with ScaleKind.UE8M0. group 0 is all of a row.
    """
    seen = _rows(comm, src, "src")
    num_rows, hidden = seen.shape
    rows = arrays.empty((num_rows, hidden), src, narrow_name(narrow))
    shape, name = scale_shape(num_rows, hidden, group, scale)
    scales = arrays.empty(shape, src, name)
    args = _args(comm, seen, dtype, "src", rows, scales, narrow, group, scale)
    args.src, args.dst = seen.address, comm.view(rows, "rows").address
    args.src_stride_bytes = seen.strides[0] if seen.strides else 0
    comm.enqueue(lib.weft_rows_quantise, comm._native, args, stream, src, rows, scales)
    return rows, scales


def dequantise(comm: Communicator, rows: Any, scales: Any, out: Any, *,
               narrow: Dtype = Dtype.FP8_E4M3, group: int = 128,
               scale: ScaleKind = ScaleKind.FP32, dtype: Any = None,
               stream: Stream | None = None) -> Any:
    """The way back: fills out [N, hidden] of bfloat16, float16 or float32, and returns it."""
    seen = comm.view(out, "out", writable=True)
    given = _rows(comm, rows, "rows")
    if len(seen.shape) != 2 or given.item_bytes != 1 or given.shape != seen.shape:
        raise InvalidArgumentError(f"rows are {given.dtype}{list(given.shape)} and out is "
                                   f"{seen.dtype}{list(seen.shape)}, which do not fit")
    shape, name = scale_shape(*seen.shape, group, scale)
    of_scales = comm.view(scales, "scales")
    if of_scales.shape != shape or of_scales.item_bytes != (1 if name == "uint8" else 4):
        raise InvalidArgumentError(f"scales are {of_scales.dtype}{list(of_scales.shape)}; they "
                                   f"must be {name}{list(shape)}")
    args = _args(comm, seen, dtype, "out", rows, scales, narrow, group, scale)
    args.src, args.dst = given.address, seen.address
    args.src_stride_bytes = given.strides[0] if given.strides else 0
    comm.enqueue(lib.weft_rows_dequantise, comm._native, args, stream, rows, scales, out)
    return out


def _rows(comm: Communicator, array: Any, name: str) -> arrays.View:
    seen = comm.view(array, name, dense=False)
    arrays.check_rows(seen, name)
    return seen


def _args(comm: Communicator, wide: arrays.View, dtype: Any, name: str, rows: Any, scales: Any,
          narrow: Dtype, group: int, scale: ScaleKind) -> abi.RowsArgs:
    return abi.RowsArgs(scales=comm.view(scales, "scales").address, num_rows=wide.shape[0],
                        hidden=wide.shape[1], dtype=arrays.weft_dtype(wide, dtype, name),
                        quantisation=abi.Quantisation(dtype=narrow, scale=scale,
                                                      group_elements=group))
