# SPDX-License-Identifier: MIT
"""For PyTorch: communicators of process groups, and dispatch and combine with gradients.

    comm = weft.torch.communicator()  # of torch.distributed's default group
    experts = weft.torch.TokenDispatcher(comm, num_experts, num_topk, arena_bytes=1 << 30)

    class MoeLayer(torch.nn.Module):
        def forward(self, x):
            weights, idx = self.gate(x).softmax(-1).topk(num_topk)
            got = experts.dispatch(x, idx, weights)
            y = torch.zeros_like(got.rows)
            for local, expert in enumerate(self.local_experts):
                row, k = (got.topk_idx == local).nonzero(as_tuple=True)
                y = y.index_add(0, row, expert(got.rows[row]) * got.topk_weights[row, k, None])
            return experts.combine(y, got.routing)

All functions of the package take tensors; on machine cuda they run on the current stream.
"""
from __future__ import annotations

import functools
import os
import secrets
import socket
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch.autograd.function import once_differentiable

from . import gate as gates
from . import rows as quantised
from .abi import Dtype, ScaleKind
from .agreement import Rows, refuse, tag_of
from .communicator import Communicator, serve_rendezvous, unique_id, unique_id_at
from .eager import eager
from .expert_parallel import Counts, ExpertParallel, Handle
from .library import Error, InvalidArgumentError, OutOfMemoryError
from .objects import Uncopied
from .pool import Pool, WhenFull

__all__ = ["Dispatched", "Pool", "Routing", "TokenDispatcher", "WhenFull", "agree_on_id",
           "choose_experts", "communicator", "make_context"]


def communicator(group: Any = None, **config: int) -> Communicator:
    """A communicator of the ranks of a torch.distributed group, in its order; by default of all.
    Keywords are settings of weft_comm_config. Collective over the group."""
    make_context()
    rank, num_ranks = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)

    def gather(mine: Any) -> list[Any]:
        everybody: list[Any] = [None] * num_ranks
        torch.distributed.all_gather_object(everybody, mine, group=group)
        return everybody

    return Communicator(agree_on_id(rank, gather), rank, num_ranks, **config)


def agree_on_id(rank: int, gather: Callable[[Any], list[Any]]) -> bytes:
    """An id that rank 0 serves, for all. gather: everybody's objects, in rank order. Collective."""
    is_on_one_host = len(set(gather(socket.gethostname()))) == 1
    served: Any = None
    if rank == 0:
        try:
            served = _serve(is_on_one_host=is_on_one_host)
        except Error as error:  # for which the others are not to wait
            served = error
    made = gather(served)[0]
    if isinstance(made, Error):
        raise made
    return made


def make_context() -> None:
    """weft uses the device of the current CUDA context, which PyTorch makes when it is first
    needed."""
    if torch.cuda.is_available():
        torch.zeros(1, dtype=torch.uint8, device="cuda")


def _serve(*, is_on_one_host: bool) -> bytes:
    if is_on_one_host or os.environ.get("WEFT_ADDR"):
        return unique_id()
    made = unique_id_at(socket.gethostname(), _find_port(os.getpid()), secrets.token_hex(16))
    serve_rendezvous(made)
    return made


@functools.cache
def _find_port(pid: int) -> int:
    """A free port, one for all ids of a process, so that they share one rendezvous."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


class Routing(Uncopied):
    """Where the tokens of a batch went; it holds a handle for as long as somebody needs it."""

    def __init__(self, dispatcher: TokenDispatcher, handle: Handle):
        self.dispatcher, self.handle = dispatcher, handle
        self.num_rows = 0  # that came to this rank
        self.like: Rows | None = None  # x of dispatch()

    def __del__(self):
        # Without a handle __init__ did not run; after move_experts() it has ended.
        if hasattr(self, "handle") and self.handle.ep is self.dispatcher.ep:
            self.dispatcher._free_handles.append(self.handle)


class Dispatched(NamedTuple):
    """What came to this rank: n rows, in (source rank, token) order.

    - rows: [n, hidden], of x's dtype; differentiable
    - topk_idx: [n, K] local expert, or -1
    - topk_weights: [n, K] float32, 0 where topk_idx is -1; differentiable
    - counts: weft.Counts
    - routing: for combine()
    """

    rows: torch.Tensor
    topk_idx: torch.Tensor
    topk_weights: torch.Tensor
    counts: Counts
    routing: Routing


STAGING_BYTES = 8 << 20
BATCHES_IN_ARENA = 4
GROUP_ELEMENTS = 128  # of narrow rows, that share a scale


class TokenDispatcher(Uncopied):
    """Sends tokens to their experts and sums what comes back, with gradients.

    arena_bytes: memory, of the heap, for the rows that have come, until autograd needs them no
    more, and for answers that are not in it yet. None: as much as four of the largest batches that
    have come to any rank, as long as the heap has it. What finds no room there is staged
    (weft_ep_config.staging_bytes, 8 MiB unless it is given). Collective; so are dispatch() and
    combine(), and their backward passes, which all ranks run in the same order.

    narrow: FP8_E4M3 or INT8, as which rows go to the experts, with a scale for each 128 elements;
    they are of x's dtype again where they come. Sums and gradients go as they are; the gradient of
    rounding counts as 1.
    """

    def __init__(self, comm: Communicator, num_experts: int, num_topk: int,
                 arena_bytes: int | None, *, max_tokens: int = 0, narrow: Dtype | None = None,
                 **ep_config: Any):
        self._ep_config = {"staging_bytes": STAGING_BYTES} | ep_config
        self.ep = ExpertParallel(comm, num_experts, **self._ep_config)
        self.pool = Pool(comm, arena_bytes or 0)
        self.narrow = narrow
        self._num_topk, self._max_tokens = num_topk, max_tokens
        self._grows = arena_bytes is None
        self._free_handles: list[Handle] = []

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor [...] of any dtype itself where other ranks reach it, else a copy there, if
        there is room: inputs of combine."""
        if tensor.is_contiguous() and self.ep.comm.is_direct(tensor):
            return tensor
        copy, = self.pool.empty((tuple(tensor.shape), tensor.dtype))
        return copy.copy_(tensor)

    def move_experts(self, expert_ranks: Sequence[Sequence[int]], weights: Sequence[Any],
                     moved: Sequence[Any]) -> None:
        """Experts are at other ranks from now on, and `moved` has their weights there, as
        ExpertParallel.move_experts() says. No Routing from before serves any more. Collective."""
        following = ExpertParallel(self.ep.comm, self.ep.num_experts,
                                   **self._ep_config | {"expert_ranks": expert_ranks})
        self.ep.move_experts(following, weights, moved)
        self._free_handles.clear()
        self.ep.destroy()
        self.ep = following

    @eager
    def dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor,
                 topk_weights: torch.Tensor) -> Dispatched:
        """x [N, hidden] of bfloat16, float16 or float32; topk_idx [N, K] of int32 or int64, -1 for
        none; topk_weights [N, K] of float32."""
        handle = self._free_handles.pop() if self._free_handles else \
            self.ep.handle(self._num_topk, max_tokens=self._max_tokens)
        routing = Routing(self, handle)
        routing.like = Rows(x.dtype, tuple(x.shape[1:]))
        num_tokens = topk_idx.shape[0] if topk_idx.dim() else 0
        _check_rows("x", x, (num_tokens, None))
        _check_rows("topk_weights", topk_weights, (num_tokens, self._num_topk))
        topk_idx = topk_idx.contiguous()
        terms = ("x", routing.like), ("topk_idx", topk_idx.dtype)
        tag = tag_of(terms)
        handle.layout(topk_idx, tag=tag)
        handle.notify()
        counts = handle.wait_counts()
        if counts.tags.count(tag) < len(counts.tags):
            refuse(self.ep.comm, terms)
        routing.num_rows = counts.num_recv_tokens
        self._make_room(counts.max_recv_tokens * (
            x.shape[1] * x.element_size() + self._num_topk * (topk_idx.element_size() + 4)))
        received = _Dispatch.apply(x, topk_weights.float(), topk_idx, routing,
                                   counts.num_recv_tokens)
        return Dispatched(*received, counts, routing)

    def _make_room(self, batch_bytes: int) -> None:
        """For batches of the rank that gets most, which all ranks know: so all do it together."""
        if self._grows:
            try:
                self.pool.grow(BATCHES_IN_ARENA * batch_bytes)
            except OutOfMemoryError:  # on all ranks
                self._grows = False

    @eager
    def combine(self, rows: torch.Tensor, routing: Routing) -> torch.Tensor:
        """The sum of each token's rows, [N, hidden]; row i of rows [n, hidden], of x's dtype,
        answers row i of dispatch()."""
        if not isinstance(routing, Routing):
            raise InvalidArgumentError(f"routing is a {type(routing).__name__}; it must be the "
                                       "one that dispatch() returned")
        if rows.dim() != 2 or rows.shape[0] != routing.num_rows:
            raise InvalidArgumentError(f"rows has shape {list(rows.shape)}; it must be "
                                       f"[{routing.num_rows}, hidden], as dispatch() gave them")
        if Rows(rows.dtype, tuple(rows.shape[1:])) != routing.like:
            raise InvalidArgumentError(f"rows is {rows.dtype}{list(rows.shape)}, and x of its "
                                       f"dispatch() was {routing.like}; they must be alike")
        return _Combine.apply(rows, routing)


def _check_rows(name: str, tensor: torch.Tensor, shape: tuple[int | None, int | None]) -> None:
    """Checks, before anything is sent, for a tensor [...] of a type that has gradients."""
    if not tensor.dtype.is_floating_point or tensor.dim() != 2 or any(
            size not in (None, found) for size, found in zip(shape, tensor.shape)):
        sizes = ", ".join("hidden" if size is None else str(size) for size in shape)
        raise InvalidArgumentError(f"{name} is {tensor.dtype}{list(tensor.shape)}; it must be of a "
                                   f"floating-point type, [{sizes}]")


def _planes(num_rows: int, x: torch.Tensor, narrow: Dtype | None
            ) -> tuple[tuple[tuple[int, ...], torch.dtype], ...]:
    """Shapes and types of the rows of x [N, hidden] as they come, and of narrow rows' scales."""
    if narrow is None:
        return ((num_rows, *x.shape[1:]), x.dtype),
    shape, dtype = quantised.scale_shape(num_rows, x.shape[1], GROUP_ELEMENTS, ScaleKind.FP32)
    return (((num_rows, x.shape[1]), getattr(torch, quantised.narrow_name(narrow))),
            (shape, getattr(torch, dtype)))


def widen(comm: Communicator, planes: Sequence[torch.Tensor], like: torch.Tensor,
          narrow: Dtype | None) -> torch.Tensor:
    """Rows [n, hidden] of the dtype of like, from themselves, or from narrow rows and scales."""
    if narrow is None:
        return planes[0]
    return quantised.dequantise(comm, *planes, like.new_empty(planes[0].shape), narrow=narrow,
                                group=GROUP_ELEMENTS)


class _Dispatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, topk_weights, topk_idx, routing, num_rows):
        num_topk, narrow = topk_idx.shape[1], routing.dispatcher.narrow
        *rows, recv_idx, recv_weights = routing.dispatcher.pool.empty(
            *_planes(num_rows, x, narrow), ((num_rows, num_topk), topk_idx.dtype),
            ((num_rows, num_topk), topk_weights.dtype))
        received = routing.handle.dispatch(
            x.contiguous(), rows, topk_idx=topk_idx, topk_weights=topk_weights.contiguous(),
            recv_topk_idx=recv_idx, recv_topk_weights=recv_weights, narrow=narrow)
        ctx.routing = routing
        ctx.save_for_backward(received.topk_idx)
        ctx.mark_non_differentiable(received.topk_idx)
        return (widen(routing.handle.ep.comm, received.planes, x, narrow), received.topk_idx,
                received.topk_weights)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_rows, _, grad_weights):
        place = ctx.routing.dispatcher.place
        topk_idx, = ctx.saved_tensors
        grad_weights = grad_weights.masked_fill(topk_idx < 0, 0)  # those were not this rank's
        grad_x, grad_weights = ctx.routing.handle.combine(
            place(grad_rows), topk_weights=place(grad_weights))
        return grad_x, grad_weights, None, None, None


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, routing):
        ctx.routing, ctx.num_rows = routing, rows.shape[0]
        return routing.handle.combine(routing.dispatcher.place(rows))

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out):
        grad_rows, = ctx.routing.dispatcher.pool.empty(
            ((ctx.num_rows, *grad_out.shape[1:]), grad_out.dtype))
        return ctx.routing.handle.dispatch(grad_out.contiguous(), grad_rows).x, None


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, comm, rule, options):
        topk_idx, topk_weights = gates.choose(comm, logits, rule, **options)
        ctx.comm, ctx.rule, ctx.dtype = comm, rule, options.get("dtype")
        # Saved: backward refuses a mask that has changed since.
        ctx.save_for_backward(logits, topk_idx, options.get("expert_mask"))
        ctx.mark_non_differentiable(topk_idx)
        return topk_idx, topk_weights

    @staticmethod
    @once_differentiable
    def backward(ctx, _, grad_weights):
        logits, topk_idx, expert_mask = ctx.saved_tensors
        grad = gates.backward(ctx.comm, logits, ctx.rule, topk_idx, grad_weights.contiguous(),
                              expert_mask=expert_mask, dtype=ctx.dtype)
        return grad.to(logits.dtype), None, None, None


def choose_experts(comm: Communicator, logits: torch.Tensor, rule: gates.Rule,
                   **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """weft.gate.choose, logits [N, E] -> (topk_idx [N, K] of int64, topk_weights [N, K] of
    float32), with the gradient of the logits from that of the weights."""
    return _Gate.apply(logits, comm, rule, options)
