# SPDX-License-Identifier: MIT
"""For Hugging Face transformers: experts that are spread over ranks get their tokens by weft.

    import weft.transformers

    model = AutoModelForCausalLM.from_pretrained(path, distributed_config=DistributedConfig(
        fsdp_size=n, ep_size=n, ep_implementation="weft"))  # each rank has a batch of its own
    #   tp_size=n, ep_size=n: all ranks have the same batch, as for model.generate()

The project's docs/transformers.md tells more.
"""
from __future__ import annotations

import functools
import math
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.distributed import get_process_group_ranks

from . import torch as weft_torch
from .abi import Dtype, LlLayout, Machine
from .collectives import Collectives
from .communicator import Communicator
from .eager import eager
from .expert_parallel import ExpertParallel, Handle
from .low_latency import LowLatency

try:
    from transformers.distributed.expert_parallel import (EPImplementation,
                                                          EPImplementationInterface)
except ImportError as error:
    raise ImportError("weft.transformers needs transformers 5.23 or later, and accelerate: "
                      "pip install 'transformers>=5.23' accelerate") from error

__all__ = ["Options", "WeftEP", "register"]


class Options(NamedTuple):
    """How rows go.

    - narrow: Dtype.FP8_E4M3 or Dtype.INT8, as which rows go to experts of other ranks, with a scale
      for each 128 elements; None: as they are. Where all ranks have the same batch no row goes.
    - low_latency_tokens: without gradients batches of at most so many tokens, of the rank that has
      most, go by the low-latency operations; 0: none
    - timeout_ms: deadline of each wait for a rank that lives
    """

    narrow: Dtype | None = None
    low_latency_tokens: int = 64
    timeout_ms: int = 30 * 60 * 1000


def register(name: str = "weft", **options: Any) -> None:
    """Makes ep_implementation=name mean weft, with the fields of Options. `import
    weft.transformers` has registered "weft"."""
    EPImplementationInterface.register(name, partial(WeftEP, options=Options(**options)))


class _Ranks:
    """The communicator of a process group, one for all groups of the same ranks."""

    _all: dict[Any, _Ranks] = {}

    def __init__(self, mesh: Any, options: Options):
        machine = Machine.CPU if mesh.device_type == "cpu" else Machine.CUDA
        self.comm = weft_torch.communicator(mesh.get_group(), machine=machine,
                                            timeout_ms=options.timeout_ms)
        self.collectives = Collectives(self.comm)
        self._exchanges: dict[Any, _Exchange] = {}
        self._sums = ExpertParallel(self.comm, self.comm.num_ranks)  # of rows that are here
        self.handle = functools.cache(self._sums.handle)
        self._rows: dict[Any, torch.Tensor] = {}

    @classmethod
    def of(cls, mesh: Any, options: Options) -> _Ranks:
        key = mesh.device_type, options.timeout_ms, *get_process_group_ranks(mesh.get_group())
        if key not in cls._all:
            cls._all[key] = cls(mesh, options)
        return cls._all[key]

    def exchange(self, *settings: Any) -> _Exchange:
        """That of all layers with these settings. Collective."""
        if settings not in self._exchanges:
            self._exchanges[settings] = _Exchange(self, *settings)
        return self._exchanges[settings]

    def pick(self, rows: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        """rows[row], [m, hidden], until the next call: of new memory the system would map page
        after page, which takes longer than to fill it."""
        key, num_rows = (rows.shape[1], rows.dtype), row.shape[0]
        if key not in self._rows or self._rows[key].shape[0] < num_rows:
            with torch.inference_mode(False):  # where alone it could be written, else
                self._rows[key] = rows.new_empty((num_rows * 5 // 4, rows.shape[1]))
        return torch.index_select(rows, 0, row, out=self._rows[key][:num_rows])


class _Exchange:
    """Brings rows to the ranks of their experts and sums what comes back, for all layers."""

    def __init__(self, ranks: _Ranks, num_experts: int, num_topk: int, options: Options):
        self._ranks, self._num_topk, self._options = ranks, num_topk, options
        self._tokens = weft_torch.TokenDispatcher(ranks.comm, num_experts, num_topk, None,
                                                  narrow=options.narrow)
        self._rooms: dict[Any, _Room] = {}

    def __call__(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
                 run_experts: Any) -> torch.Tensor:
        if self._options.low_latency_tokens > 0 and not torch.is_grad_enabled():
            key = x.shape[1], x.dtype
            if key not in self._rooms:
                self._rooms[key] = _Room(self._tokens, self._num_topk, self._options, x)
            out = self._rooms[key].exchange(x, topk_idx, topk_weights, run_experts)
            if out is not None:
                return out
        got = self._tokens.dispatch(x, topk_idx, topk_weights)
        rows = run_experts(got.rows, got.topk_idx, got.topk_weights)
        return self._tokens.combine(rows, got.routing)


class _Room:
    """Low-latency operations for few tokens [N, hidden] of one type. No rank knows before how many
    tokens others have: one with too many sends each rank a row of weight -inf in their place.
    """

    @torch.inference_mode(False)  # in which memory could not be written outside of it
    def __init__(self, tokens: weft_torch.TokenDispatcher, num_topk: int, options: Options,
                 like: torch.Tensor):
        self._comm, self._narrow = tokens.ep.comm, options.narrow
        narrow = {} if options.narrow is None else {
            "narrow": options.narrow, "group": weft_torch.GROUP_ELEMENTS}
        num_ranks, hidden = self._comm.num_ranks, like.shape[1]
        firsts = [tokens.ep.experts_of(rank)[0] for rank in range(num_ranks)]
        firsts += [-1] * (-num_ranks % num_topk)
        ids = torch.tensor(firsts, device=like.device).view(-1, num_topk)
        self._too_many = (like.new_zeros((len(ids), hidden)), ids,
                          torch.full(ids.shape, -math.inf, device=like.device))
        self._max_tokens = max(options.low_latency_tokens, len(ids))
        self._ll = LowLatency(tokens.ep, hidden, self._max_tokens, num_topk, like.dtype,
                              layout=LlLayout.BY_RANK, **narrow)
        slots = self._ll.slots(like)
        self._half, self._slots = slots.half, [
            [slot.flatten(0, 1) for slot in halves] for halves in slots[1:5]]
        self._counts = self._ll.empty_rows(like)
        self._answers = like.new_empty((num_ranks, self._max_tokens, hidden))
        self._places_of = functools.lru_cache(1024)(partial(self._find_places, like.device))

    def exchange(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
                 run_experts: Any) -> torch.Tensor | None:
        """None, on all ranks, if one has too many tokens."""
        sent = x, topk_idx, topk_weights.float()
        if x.shape[0] > self._max_tokens:
            sent = self._too_many
        self._ll.dispatch(*(tensor.contiguous() for tensor in sent), self._counts)
        counts, half = self._counts.num_rows_per_rank.tolist(), int(self._half)
        places = self._places_of(*counts)
        x_rows, scales, experts, weights = (
            halves[half].index_select(0, places) if halves else None for halves in self._slots)
        if weights.nansum().item() == -math.inf:
            self._ll.release()
            return None
        rows = weft_torch.widen(self._comm, (x_rows, scales), x, self._narrow)
        made = run_experts(rows, experts, weights)
        first = 0
        for source, count in enumerate(counts):
            self._answers[source, :count] = made[first:first + count]
            first += count
        return self._ll.combine(self._answers)

    def _find_places(self, device: torch.device, *counts: int) -> torch.Tensor:
        """Of rows among all slots, [n]: so many of each rank."""
        return torch.tensor([source * self._max_tokens + i for source, count in enumerate(counts)
                             for i in range(count)], dtype=torch.int64, device=device)


class _Sum(torch.autograd.Function):
    """The sum of what ranks with the same batch have made of it. Each has its gradient."""

    @staticmethod
    def forward(ctx, part, collectives):
        return collectives.all_reduce(part)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class _SumGradients(torch.autograd.Function):
    """x itself, which ranks with the same batch share: each has a part of its gradient."""

    @staticmethod
    def forward(ctx, x, collectives):
        ctx.collectives = collectives
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.collectives.all_reduce(grad.contiguous()), None


class _Choices(NamedTuple):
    """The m choices of this rank's experts that rows [n, hidden] have made, row after row.

    - row: [m] the row of each choice
    - number: [n, K] int32, the choice in each place of topk_idx, or -1
    - handle: for K choices of a row
    """

    row: torch.Tensor
    number: torch.Tensor
    handle: Handle

    @classmethod
    def of(cls, choice: torch.Tensor, topk_idx: torch.Tensor, handle: Handle) -> _Choices:
        """choice: [m] the places of topk_idx [n, K] in which there is an expert."""
        number = topk_idx.new_full(topk_idx.shape, -1, dtype=torch.int32)
        number.view(-1).index_copy_(
            0, choice, torch.arange(len(choice), dtype=torch.int32, device=number.device))
        return cls(choice // topk_idx.shape[1], number, handle)

    def sums(self, made: torch.Tensor) -> torch.Tensor:
        """Each row's sum of made [m, hidden], in fp32, in order of its choices: [n, hidden]."""
        if made.dtype == torch.float64:  # of ranks with one batch: no row of it goes to another
            return made.new_zeros((len(self.number), made.shape[1])).index_add_(0, self.row, made)
        return self.handle.reduce(made.contiguous(), self.number)


class _Repeated(torch.autograd.Function):
    """The row [n, hidden] of each choice, and the sums of their gradients."""

    @staticmethod
    def forward(ctx, rows, choices):
        ctx.choices = choices
        return rows.index_select(0, choices.row)

    @staticmethod
    def backward(ctx, grads):
        return ctx.choices.sums(grads), None


class _Sums(torch.autograd.Function):
    """choices.sums() with gradients."""

    @staticmethod
    def forward(ctx, made, choices):
        ctx.choices = choices
        return choices.sums(made)

    @staticmethod
    def backward(ctx, grads):
        return grads.index_select(0, ctx.choices.row), None


class WeftEP(EPImplementation):
    """What transformers makes for the experts of each layer. Calls are collective.

    Where all ranks of the experts have the same batch, each runs its experts on it, and one
    all-reduce sums. Else each token's row goes to the ranks of its experts, and one row of each of
    these comes back; of ranks that share a batch each sends its part of it.
    """

    def __init__(self, experts: torch.nn.Module, ep_mesh: Any, tp_mesh: Any,
                 options: Options = Options()):
        super().__init__(experts, ep_mesh, tp_mesh)
        self._options = options
        self._ranks = _Ranks.of(ep_mesh, options)
        self._sharers = _Ranks.of(tp_mesh, options) if tp_mesh.size() > 1 else None

    @eager
    def __call__(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor,
                 top_k_weights: torch.Tensor) -> torch.Tensor:
        """hidden_states [N, hidden], top_k_index [N, K] of all experts' ids, top_k_weights [N, K]
        of any floating-point type -> [N, hidden]."""
        run_experts = partial(self._run_experts, top_k_weights.dtype)
        if self._sharers is None:
            return self._exchange(hidden_states, top_k_index, top_k_weights, run_experts)
        collectives = self._sharers.collectives
        if torch.is_grad_enabled():
            hidden_states, top_k_weights = (_SumGradients.apply(tensor, collectives)
                                            for tensor in (hidden_states, top_k_weights))
        if self.shares_batch:
            part = run_experts(hidden_states, self._local(top_k_index), top_k_weights)
        else:
            part = self._exchange(hidden_states, self._own_part(top_k_index), top_k_weights,
                                  run_experts)
        return _Sum.apply(part, collectives)

    def _exchange(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
                  run_experts: Any) -> torch.Tensor:
        exchange = self._ranks.exchange(self.num_local_experts * self.ep_mesh.size(),
                                        topk_idx.shape[1], self._options)
        return exchange(x, topk_idx, topk_weights, run_experts)

    def _local(self, topk_idx: torch.Tensor) -> torch.Tensor:
        """Numbers of this rank's experts, -1 for others'."""
        local = topk_idx - self.num_local_experts * self._ranks.comm.rank
        return local.masked_fill_((local < 0) | (local >= self.num_local_experts), -1)

    def _own_part(self, topk_idx: torch.Tensor) -> torch.Tensor:
        """-1 for the tokens that other ranks with the same batch send."""
        comm: Communicator = self._sharers.comm
        first, end = (topk_idx.shape[0] * r // comm.num_ranks for r in (comm.rank, comm.rank + 1))
        own = torch.full_like(topk_idx, -1)
        own[first:end] = topk_idx[first:end]
        return own

    def _run_experts(self, dtype: torch.dtype, rows: torch.Tensor, topk_idx: torch.Tensor,
                     topk_weights: torch.Tensor) -> torch.Tensor:
        """rows [n, hidden], topk_idx [n, K] of local ids or -1 -> the weighed sums of what this
        rank's experts make of each row, [n, hidden]. dtype: of the weights that experts get."""
        choice = (topk_idx >= 0).flatten().nonzero()[:, 0]
        num_choices = choice.shape[0]
        choices = _Choices.of(choice, topk_idx, self._ranks.handle(topk_idx.shape[1]))
        if num_choices == 0:  # autograd is to find the experts and the collectives behind
            chosen = (rows.sum(0, keepdim=True), topk_idx.new_zeros((1, 1)),
                      topk_weights.new_ones((1, 1), dtype=dtype))
        else:
            ids, weights = (each.reshape(-1, 1).index_select(0, choice)
                            for each in (topk_idx, topk_weights))
            picked = _Repeated.apply(rows, choices) if torch.is_grad_enabled() or rows.is_cuda \
                else self._ranks.pick(rows, choices.row)
            chosen = picked, ids.long(), weights.to(dtype)
        made = self.experts_forward(*chosen)[:num_choices]
        return _Sums.apply(made, choices).to(rows.dtype)


register()
