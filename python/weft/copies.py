# SPDX-License-Identifier: MIT
"""Copies of experts for one step, which weft.balance.fill has placed: their weights, their tokens
and their gradients (weft_ep.h).

base and experts are [replicas], as fill() took and made them for a layer. Arrays of weights and
gradients are of heap_empty(), each [L, ...] with a row for each replica of a rank.
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from . import abi, arrays
from .communicator import Communicator
from .library import InvalidArgumentError, lib
from .streams import Stream


def choose(comm: Communicator, topk_idx: Any, granules: Any, *,
           stream: Stream | None = None) -> Any:
    """The replica that serves each choice, like topk_idx [N, K], which has experts: -1 where that
    is none. granules: [E * BALANCE_GRANULES] of int32, memory of the machine."""
    index = comm.view(topk_idx, "topk_idx")
    arrays.require(index, "topk_idx", tuple(arrays.INDEX_TYPES), (None, None))
    table = comm.view(granules, "granules")
    arrays.require(table, "granules", ("int32",), (None,))
    num_experts, rest = divmod(table.shape[0], abi.BALANCE_GRANULES)
    if rest:
        raise InvalidArgumentError(f"granules has {table.shape[0]} elements; it must be a multiple "
                                   f"of {abi.BALANCE_GRANULES}")
    replica_idx = arrays.empty(index.shape, topk_idx, index.dtype)
    args = abi.EpReplicasArgs(
        topk_idx=index.address, replica_idx=comm.view(replica_idx, "replica_idx").address,
        granules=table.address, index_type=arrays.INDEX_TYPES[index.dtype],
        num_tokens=index.shape[0], num_topk=index.shape[1], num_experts=num_experts)
    comm.enqueue(lib.weft_ep_choose_replicas, comm._native, args, stream, topk_idx, granules,
                 replica_idx)
    return replica_idx


def fetch(comm: Communicator, base: Sequence[int], experts: Sequence[int], weights: Sequence[Any],
          *, stream: Stream | None = None) -> None:
    """Brings the weights of experts to their copies. Weights are arrays [L, ...] of any type from
    heap_empty(). Collective, on a stream."""
    args, kept = _arguments(comm, base, experts, weights, "weights", None)
    comm.enqueue(lib.weft_ep_fetch_copies, comm._native, args, stream, weights, kept)


def reduce(comm: Communicator, base: Sequence[int], experts: Sequence[int],
           gradients: Sequence[Any], staging: Any, *, dtype: Any = None,
           stream: Stream | None = None) -> None:
    """Adds the gradients of copies to those of their owners, in a fixed order. All arrays have one
    type, float32, float16 or bfloat16; dtype: which, where arrays do not know it. staging: an array
    of heap_empty(); the larger, the fewer steps. Collective, on a stream."""
    seen = comm.view(staging, "staging", writable=True)
    args, kept = _arguments(comm, base, experts, gradients, "gradients", dtype)
    args.staging, args.staging_bytes = seen.address, seen.num_bytes
    comm.enqueue(lib.weft_ep_reduce_copies, comm._native, args, stream, gradients, staging, kept)


def _placement(experts: Sequence[int]) -> ctypes.Array:
    return (ctypes.c_int32 * len(experts))(*(int(expert) for expert in experts))


def _arguments(comm: Communicator, base: Sequence[int], experts: Sequence[int],
               given: Sequence[Any], name: str, dtype: Any
               ) -> tuple[abi.EpCopiesArgs, tuple[ctypes.Array, ...]]:
    """With what the fields point to."""
    if len(base) != len(experts):
        raise InvalidArgumentError(
            f"experts has {len(experts)} replicas, base has {len(base)}")
    num_rows, rest = divmod(len(base), comm.num_ranks)
    if rest:
        raise InvalidArgumentError(
            f"base has {len(base)} replicas, must be a multiple of the {comm.num_ranks} ranks")
    planes = (abi.Plane * len(given))()
    args = abi.EpCopiesArgs(num_replicas=len(base), num_planes=len(given))
    for i, (array, plane) in enumerate(zip(given, planes)):
        seen = comm.view(array, f"{name}[{i}]", writable=True)
        if not seen.shape or seen.shape[0] != num_rows:
            raise InvalidArgumentError(
                f"{name}[{i}] is {list(seen.shape)}; it must have {num_rows} rows")
        plane.size = ctypes.sizeof(abi.Plane)
        plane.dst, plane.row_bytes = seen.address, seen.row_bytes
        if name == "gradients":
            found = arrays.weft_dtype(seen, dtype, f"{name}[{i}]")
            if i and found != args.dtype:
                raise InvalidArgumentError(
                    f"{name}[{i}] has elements of {arrays.name_of(found)}, {name}[0] of "
                    f"{arrays.name_of(abi.Dtype(args.dtype))}; they must have one type")
            args.dtype = found
    kept = _placement(base), _placement(experts), planes
    args.base, args.experts, args.planes = map(ctypes.addressof, kept)
    return args, kept
