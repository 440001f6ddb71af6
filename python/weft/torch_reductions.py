# SPDX-License-Identifier: MIT
"""Which of PyTorch's reductions weft has, and how the others are done."""
from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch._C._distributed_c10d import ReduceOp as C10dOp

from .abi import Dtype, ReduceOp
from .library import UnsupportedError

_OPS = {C10dOp.SUM: ReduceOp.SUM, C10dOp.PRODUCT: ReduceOp.PROD, C10dOp.MIN: ReduceOp.MIN,
        C10dOp.MAX: ReduceOp.MAX, C10dOp.AVG: ReduceOp.AVG,
        C10dOp.PREMUL_SUM: ReduceOp.PREMUL_SUM}
_TYPES = {torch.int32: Dtype.INT32, torch.int64: Dtype.INT64, torch.uint8: Dtype.UINT8,
          torch.bfloat16: Dtype.BF16, torch.float16: Dtype.FP16, torch.float32: Dtype.FP32,
          torch.float64: Dtype.FP64, torch.float8_e4m3fn: Dtype.FP8_E4M3}
# Other types that have the sums of one of those: dtype, and how many of it.
_SUMMED_AS = {torch.int8: (Dtype.UINT8, 1), torch.complex64: (Dtype.FP32, 2),
              torch.complex128: (Dtype.FP64, 2)}
_FOLDS = {C10dOp.SUM: torch.add, C10dOp.AVG: torch.add, C10dOp.PRODUCT: torch.mul,
          C10dOp.MIN: torch.minimum, C10dOp.MAX: torch.maximum, C10dOp.BAND: torch.bitwise_and,
          C10dOp.BOR: torch.bitwise_or, C10dOp.BXOR: torch.bitwise_xor}


def _kind(op: Any) -> Any:
    return getattr(op, "op", op)


# By the numbers of PyTorch's operations: their objects take longer to compare.
_NATIVE = {(kind.value, dtype): (of_weft, 1, {"op": op})
           for kind, op in _OPS.items() for dtype, of_weft in _TYPES.items()}
_NATIVE |= {(C10dOp.SUM.value, dtype): (*as_others, {"op": ReduceOp.SUM})
            for dtype, as_others in _SUMMED_AS.items()}
_PREMUL_SUM = C10dOp.PREMUL_SUM.value


def native_reduction(dtype: torch.dtype, op: Any) -> tuple[Dtype, int, dict[str, Any]] | None:
    """Type, how many of it make an element, and fields of weft_coll_args; None: weft has no such
    reduction."""
    number = _kind(op).value
    native = _NATIVE.get((number, dtype))
    if native is None or number != _PREMUL_SUM:
        return native
    of_weft, width, fields = native
    factor = op.factor.item() if isinstance(op.factor, torch.Tensor) else op.factor
    return of_weft, width, fields | {"factor": factor}


def fold(rows: torch.Tensor, op: Any) -> torch.Tensor:
    """The reduction of rows [R, ...] of any type, in their order."""
    kind = _kind(op)
    if kind not in _FOLDS:
        raise UnsupportedError(f"op is {op} of {rows.dtype}, which backend weft does not have")
    total = functools.reduce(_FOLDS[kind], rows)
    return total / len(rows) if kind == C10dOp.AVG else total


def add_sparse(tensor: torch.Tensor, op: Any,
               gather: Callable[[torch.Tensor], list[torch.Tensor]]) -> torch.Tensor:
    """The sum of all ranks' sparse tensors, in place. gather: all ranks' tensors, of any length."""
    if _kind(op) != C10dOp.SUM:
        raise UnsupportedError(f"op is {op}; of sparse tensors there is the sum alone")
    mine = tensor.coalesce()
    indices = gather(mine.indices().t().contiguous())
    values = gather(mine.values().contiguous())
    total = torch.sparse_coo_tensor(torch.cat(indices).t(), torch.cat(values), tensor.shape)
    return tensor.copy_(total.coalesce())
