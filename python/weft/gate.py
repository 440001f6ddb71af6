# SPDX-License-Identifier: MIT
"""The gate: experts of tokens from their logits, with weights, gradients and biases (weft_gate.h).

Operations are local to a rank. weft.torch.choose_experts has the gradient, for PyTorch.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import abi, arrays
from .abi import Dtype, GateGroupScore, GateScore, GateWeights
from .communicator import Communicator
from .library import InvalidArgumentError, lib
from .streams import Stream

_INDEX_NAMES = {Dtype.INT32: "int32", Dtype.INT64: "int64"}


@dataclass(frozen=True)
class Rule:
    """How experts are chosen and weighted; what it says is that of weft_gate_args."""

    num_topk: int
    score: GateScore = GateScore.SOFTMAX
    weights: GateWeights = GateWeights.NORMALISED
    scale: float = 1.0
    num_groups: int = 1
    num_kept_groups: int = 0
    group_score: GateGroupScore = GateGroupScore.TOP2


def choose(comm: Communicator, logits: Any, rule: Rule, *, bias: Any = None,
           expert_mask: Any = None, token_mask: Any = None, counts: Any = None,
           index_type: Dtype = Dtype.INT64, dtype: Any = None,
           stream: Stream | None = None) -> tuple[Any, Any]:
    """logits [N, E], whose rows may lie apart -> (topk_idx [N, K], topk_weights [N, K]).

    bias [E] of float32. Masks, [E] and [N], of bool, int8 or uint8: 0 leaves out. counts [E] of
    int32: the choices are added.
    """
    seen = _logits(comm, logits)
    num_tokens, num_experts = seen.shape
    if not 1 <= rule.num_topk <= num_experts:
        raise InvalidArgumentError(
            f"num_topk is {rule.num_topk}, allowed are 1..{num_experts}, the experts of logits")
    shape = num_tokens, rule.num_topk
    topk_idx = arrays.empty(shape, logits, _index_name(index_type))
    topk_weights = arrays.empty(shape, logits, "float32")
    args = abi.GateArgs(
        bias=_optional(comm, bias, "bias", ("float32",), num_experts),
        expert_mask=_optional(comm, expert_mask, "expert_mask", _MASKS, num_experts),
        token_mask=_optional(comm, token_mask, "token_mask", _MASKS, num_tokens),
        num_tokens_per_expert=_optional(comm, counts, "counts", ("int32",), num_experts,
                                        writable=True),
        topk_idx=comm.view(topk_idx, "topk_idx").address,
        topk_weights=comm.view(topk_weights, "topk_weights").address,
        num_groups=rule.num_groups, num_kept_groups=rule.num_kept_groups,
        group_score=rule.group_score)
    _fill(args, seen, rule, index_type, dtype)
    comm.enqueue(lib.weft_gate_choose, comm._native, args, stream, logits, bias, expert_mask,
                 token_mask, counts, topk_idx, topk_weights)
    return topk_idx, topk_weights


def backward(comm: Communicator, logits: Any, rule: Rule, topk_idx: Any, grad_weights: Any, *,
             expert_mask: Any = None, dtype: Any = None, stream: Stream | None = None) -> Any:
    """The gradient of the logits, [N, E] of float32, from that of the weights, [N, K] of
    float32."""
    seen = _logits(comm, logits)
    num_tokens, num_experts = seen.shape
    shape = num_tokens, rule.num_topk
    grad_logits = arrays.empty(seen.shape, logits, "float32")
    index = comm.view(topk_idx, "topk_idx")
    arrays.require(index, "topk_idx", tuple(arrays.INDEX_TYPES), shape)
    args = abi.GateBackwardArgs(
        expert_mask=_optional(comm, expert_mask, "expert_mask", _MASKS, num_experts),
        topk_idx=index.address,
        grad_weights=comm.address_of(grad_weights, "grad_weights", ("float32",), shape),
        grad_logits=comm.view(grad_logits, "grad_logits").address)
    _fill(args, seen, rule, arrays.INDEX_TYPES[index.dtype], dtype)
    comm.enqueue(lib.weft_gate_backward, comm._native, args, stream, logits, expert_mask, topk_idx,
                 grad_weights, grad_logits)
    return grad_logits


def balance(comm: Communicator, bias: Any, counts: Any, step: float, *,
            stream: Stream | None = None) -> None:
    """Moves bias [E] of float32 by step towards the mean of counts [E] of int32, which become 0.
    Sum the counts over the ranks before."""
    seen = comm.view(counts, "counts")
    arrays.require(seen, "counts", ("int32",), (None,))
    num_experts = seen.shape[0]
    args = abi.GateBalanceArgs(
        bias=_optional(comm, bias, "bias", ("float32",), num_experts, writable=True),
        num_tokens_per_expert=_optional(comm, counts, "counts", ("int32",), num_experts,
                                        writable=True),
        num_experts=num_experts, step=step)
    comm.enqueue(lib.weft_gate_balance, comm._native, args, stream, bias, counts)


_MASKS = ("bool", "int8", "uint8")


def _index_name(index_type: Dtype) -> str:
    if index_type not in _INDEX_NAMES:
        raise InvalidArgumentError(f"index_type is {index_type!r}; allowed are INT32 and INT64")
    return _INDEX_NAMES[index_type]


def _logits(comm: Communicator, logits: Any) -> arrays.View:
    seen = comm.view(logits, "logits", dense=False)
    arrays.check_rows(seen, "logits")
    return seen


def _optional(comm: Communicator, array: Any, name: str, dtypes: tuple[str, ...], count: int,
              writable: bool = False) -> int | None:
    if array is None:
        return None
    return comm.address_of(array, name, dtypes, (count,), writable=writable)


def _fill(args: Any, seen: arrays.View, rule: Rule, index_type: Dtype, dtype: Any) -> None:
    args.logits = seen.address
    args.logits_stride_bytes = seen.strides[0] if seen.strides else 0
    args.num_tokens, args.num_experts = seen.shape
    args.num_topk = rule.num_topk
    args.dtype = arrays.weft_dtype(seen, dtype, "logits")
    args.index_type = index_type
    args.score, args.weights, args.scale = rule.score, rule.weights, rule.scale
