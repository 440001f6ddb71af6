# SPDX-License-Identifier: MIT
"""What a dispatch leaves for combine: weft's handle, inside a tuple of DeepEP's shape."""
from __future__ import annotations

import ctypes
import math
from typing import Any
from weakref import WeakKeyDictionary

import torch
import weft
from weft.agreement import Rows
from weft.objects import Uncopied


MIN_TOKENS = 256  # of a handle, so that decoding needs few kinds
MAX_EXPERTS = 8192
FLOATS = torch.bfloat16, torch.float16, torch.float32  # that combine sums
Key = tuple[int, int, int, int]


class Routing(Uncopied):
    """A handle of weft, which goes back to its pool with the last tuple that needs it. buffer: the
    Buffer that owns the handle; all operations with the handle run on it."""

    def __init__(self, buffer: Any, pool: HandlePool, key: Key, handle: weft.Handle):
        self.buffer, self._pool, self._key, self.handle = buffer, pool, key, handle
        self.num_rows = 0  # of this rank
        self.max_rows = 0  # of any rank
        self.num_expanded: int | None = None  # rows of this rank, if they are expanded
        self.like: tuple[Rows, ...] = ()  # planes of its dispatch
        self.row_bytes = 0  # of an operation there is room for so many
        self.may_lack_rows = False  # num_worst_tokens was not compared with the rows that came

    def set_room(self, like: tuple[Rows, ...], row_bytes: int) -> None:
        """Sets the planes of the dispatch, and the bytes of a row: those of a dispatched row or of
        its answer, whichever are more."""
        first = like[0]
        self._hidden = math.prod(first.shape)
        self._answer_dtype = first.dtype if first.dtype in FLOATS else torch.bfloat16
        answer_bytes = self._hidden * _answer_item_bytes(first.dtype)
        self.like = like
        self.row_bytes = max(row_bytes, answer_bytes + 4 * self.handle.num_topk)

    def look_at_room(self, like: tuple[Rows, ...], row_bytes: int) -> None:
        """Checks planes of one more dispatch: ranks do not tell each other about these."""
        if row_bytes > self.row_bytes:
            raise weft.InvalidArgumentError(
                f"x is {like}; its first dispatch was {self.like}, which leaves room for "
                f"{self.row_bytes} bytes a token")

    def look_at_answers(self, x: torch.Tensor) -> torch.Tensor:
        """Checks and returns x of combine. Its type is that of the dispatch, or BF16 if combine
        cannot sum that type. Without rows any empty tensor is right."""
        dtype, hidden = self._answer_dtype, self._hidden
        num_rows = self.num_rows if self.num_expanded is None else self.num_expanded
        if x.shape == (num_rows, hidden) and x.dtype == dtype and x.is_contiguous():
            return x
        if num_rows == 0 and x.numel() == 0:
            return torch.empty((0, hidden), dtype=dtype, device=x.device)
        like = self.like[0]
        assert x.dim() > 0 and x.shape[0] == num_rows, \
            f"x has {x.shape[0] if x.dim() else 0} rows, its dispatch {num_rows}"
        if not x.is_contiguous():
            raise weft.InvalidArgumentError("x is not contiguous")
        is_right_width = x.dim() == 2 and (
            x.shape[1] == hidden if like.dtype.is_floating_point else
            x.shape[1] * x.element_size() <= self.row_bytes)
        if x.dtype != dtype or not is_right_width:
            raise weft.InvalidArgumentError(
                f"x is {Rows(x.dtype, tuple(x.shape[1:]))}, and its dispatch was {like}; it must "
                f"be {dtype}, of as many columns")
        return x

    def look_at_weights(self, topk_weights: torch.Tensor) -> torch.Tensor:
        """Checks and returns topk_weights of combine."""
        shape = self.num_rows, self.handle.num_topk
        if self.num_rows == 0 and isinstance(topk_weights, torch.Tensor) \
                and topk_weights.numel() == 0:
            return torch.empty(shape, device=topk_weights.device)
        self.handle.ep.comm.address_of(topk_weights, "topk_weights", ("float32",), shape)
        return topk_weights

    def device_counts(self) -> weft.DeviceCounts:
        """Memory of the handle, so they are true as long as this object lives."""
        return self._pool.device_counts(self.handle)

    def __del__(self):
        if hasattr(self, "handle"):  # else __init__ did not run
            self._pool.give_back(self._key, self.handle)


def _answer_item_bytes(dtype: torch.dtype) -> int:
    """The most bytes of an answer for one element of a dispatch. An element of a packed type, as
    FP4, is two numbers."""
    if dtype.itemsize > 1:
        return dtype.itemsize
    return 2 if dtype.is_floating_point else 4


class HandlePool:
    """Handles by tokens, top-k, experts and alignment. All are of one weft_ep, which serves all
    numbers of experts, since to make another weft_ep would be collective. To make a pool is
    collective."""

    def __init__(self, comm: weft.Communicator, order: weft.EpOrder, **ep_config: int):
        self._comm, self._order = comm, order
        self._has_nodes = any(comm.node(rank) > 0 for rank in range(comm.num_ranks))
        self._ep = weft.ExpertParallel(comm, MAX_EXPERTS, **ep_config)
        self._free: dict[Key, list[weft.Handle]] = {}
        self._counts: WeakKeyDictionary[weft.Handle, weft.DeviceCounts] = WeakKeyDictionary()

    def device_counts(self, handle: weft.Handle) -> weft.DeviceCounts:
        """Views of memory of the handle, made once."""
        if handle not in self._counts:
            num_local_experts = handle.num_experts // self._comm.num_ranks
            self._counts[handle] = handle.device_counts(num_local_experts, torch.empty(0))
        return self._counts[handle]

    def close(self) -> None:
        """Views keep the communicator, which is to end."""
        self._free.clear()
        self._counts.clear()

    def take(self, buffer: Any, num_tokens: int, num_topk: int, num_experts: int,
             alignment: int, *, max_tokens: int | None = None) -> Routing:
        """max_tokens: of every rank, if the ranks agree on it."""
        num_experts = weft.abi.whole("num_experts", num_experts, ctypes.c_int32)
        if not 1 <= num_experts <= MAX_EXPERTS:
            raise weft.InvalidArgumentError(
                f"num_experts is {num_experts}, allowed are 1..{MAX_EXPERTS}")
        key = (self._max_tokens(num_tokens) if max_tokens is None else max_tokens, num_topk,
               num_experts, alignment)
        free = self._free.get(key)
        handle = free.pop() if free else self._ep.handle(num_topk, max_tokens=key[0],
                                                         num_experts=num_experts,
                                                         expert_alignment=alignment,
                                                         order=self._order)
        return Routing(buffer, self, key, handle)

    def _max_tokens(self, num_tokens: int) -> int:
        """Powers of two, so that batches share handles; graphs need a bound. Between nodes ranks
        would have to agree on it, so handles grow there."""
        if self._has_nodes:
            return 0
        return max(MIN_TOKENS, 1 << (num_tokens - 1).bit_length())

    def give_back(self, key: Key, handle: weft.Handle) -> None:
        self._free.setdefault(key, []).append(handle)


class Handle(Uncopied, tuple):
    """DeepEP's elements; what only its own kernels read has the right shape and zeros."""

    weft: Any

    @classmethod
    def of(cls, elements: tuple[Any, ...], routing: Any) -> Handle:
        handle = cls(elements)
        handle.weft = routing
        return handle


class Placeholders:
    """Zeros of any shape, in the same memory: what only DeepEP's own kernels read."""

    def __init__(self, device: torch.device):
        self._zero = torch.zeros((), dtype=torch.int32, device=device)
        self._made: dict[tuple[int, ...], torch.Tensor] = {}

    def of(self, *shape: int) -> torch.Tensor:
        """Shapes that come again and again."""
        if shape not in self._made:
            self._made[shape] = self._zero.expand(shape)
        return self._made[shape]

    def of_batch(self, *shape: int) -> torch.Tensor:
        return self._zero.expand(shape)


def intranode_handle(routing: Routing, row_ends: torch.Tensor, src_token: torch.Tensor,
                     is_token_in_rank: torch.Tensor, num_channels: int,
                     zeros: Placeholders) -> Handle:
    num_tokens, num_ranks = is_token_in_rank.shape
    channels = zeros.of(num_ranks, num_channels)
    return Handle.of((
        row_ends.unsqueeze(1).expand(num_ranks, num_ranks), channels, channels, src_token,
        is_token_in_rank, zeros.of_batch(num_tokens, num_ranks)), routing)


def internode_handle(routing: Routing, row_ends: torch.Tensor, is_token_in_rank: torch.Tensor,
                     num_nodes: int, num_channels: int, zeros: Placeholders) -> Handle:
    num_tokens, num_ranks = is_token_in_rank.shape
    by_node, by_rank = zeros.of(num_nodes, num_channels), zeros.of(num_ranks, num_channels)
    meta = zeros.of().to(torch.uint8).expand(routing.num_rows, 8)
    return Handle.of((
        is_token_in_rank, by_node, by_rank, by_node, zeros.of(num_nodes), by_rank, row_ends, meta,
        zeros.of_batch(num_tokens, num_nodes), zeros.of(0, 8)), routing)
