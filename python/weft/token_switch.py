# SPDX-License-Identifier: MIT
"""weft as a `torch.distributed._token_switch.TokenSwitch`, which PyTorch has since 2.12. It is
private there, and may change.

    switch = weft.token_switch.TokenSwitchWeft(group, num_experts, max_tokens, max_recv_tokens)
    routing = switch.create_routing(topk_idx, layout="flat")
    rows, weights, experts = switch.dispatch(routing, x, topk_weights, max_recv_tokens)
    y = switch.combine(routing, work_on(rows))
"""
from __future__ import annotations

from typing import Any

import torch
from torch.distributed._token_switch import Routing as TorchRouting
from torch.distributed._token_switch import TokenSwitch

from .expert_parallel import ExpertParallel, Handle
from .library import InvalidArgumentError
from .torch import STAGING_BYTES, Routing, communicator

LAYOUTS = ("flat", "expert_major")


class TokenSwitchWeft(TokenSwitch):
    """Arguments, layouts and results are those of PyTorch's TokenSwitchNCCL. Collective; so are
    create_routing, dispatch and combine, and their backward passes.

    flat: a row for each token that has an expert here, in (source rank, token) order, with all its
    experts here and their weights; combine sums a token's rows. expert_major: a row for each token
    and expert, by expert. Rows beyond those that have come are 0, experts there -1.
    """

    def __init__(self, process_group: Any, num_experts: int, max_dispatch_tokens_per_rank: int,
                 max_recv_tokens_per_rank: int, max_token_bytes: int = 0):
        del max_token_bytes  # weft has rows of any size
        self._ep = ExpertParallel(communicator(process_group), num_experts,
                                  staging_bytes=STAGING_BYTES)
        self._max_tokens = max_dispatch_tokens_per_rank
        self._max_recv_tokens_per_rank = max_recv_tokens_per_rank
        self._free_handles: list[Handle] = []

    def create_routing(self, topk_idx: torch.Tensor,
                       per_expert_token_counts: torch.Tensor | None = None, *,
                       layout: str) -> TorchRouting:
        """topk_idx: [N, K] of int32 or int64. per_expert_token_counts: [experts here] of int32 or
        more gets the rows of each."""
        if layout not in LAYOUTS:
            raise InvalidArgumentError(f"layout is {layout!r}; it must be one of {LAYOUTS}")
        topk_idx = topk_idx.contiguous()
        handle = self._free_handles.pop() if self._free_handles else \
            self._ep.handle(topk_idx.shape[1], max_tokens=self._max_tokens)
        routing = Routing(self, handle)
        handle.layout(topk_idx)
        handle.notify()
        counts = handle.wait_counts()
        routing.num_rows = counts.num_recv_tokens
        if per_expert_token_counts is not None:
            per_expert = torch.tensor(counts.num_recv_per_expert, dtype=torch.int32)
            per_expert_token_counts[:len(per_expert)] = per_expert
        return TorchRouting(routing, topk_idx, layout)

    def _alloc_dispatch_outputs(self, routing: TorchRouting, tokens: torch.Tensor,
                                topk_weights: torch.Tensor, max_recv_tokens: int, H: int,
                                K: int) -> tuple[Any, Any, Any]:
        rows = tokens.new_zeros(max_recv_tokens, H)
        if routing.layout == "expert_major":
            return rows, topk_weights.new_zeros(max_recv_tokens), None
        return (rows, topk_weights.new_zeros(max_recv_tokens, K),
                tokens.new_full((max_recv_tokens, K), -1, dtype=torch.int64))

    def _dispatch(self, routing: TorchRouting, tokens: torch.Tensor, topk_weights: torch.Tensor,
                  out_tokens: torch.Tensor, out_topk_weights: torch.Tensor | None,
                  out_topk_idx: torch.Tensor | None) -> None:
        handle, num_rows = routing.handle.handle, routing.handle.num_rows
        received = handle.dispatch(
            tokens.detach().contiguous(), capacity=num_rows, topk_idx=routing.topk_idx,
            topk_weights=topk_weights.detach().float().contiguous())
        rows, experts, weights = received.x, received.topk_idx, received.topk_weights
        if routing.layout == "expert_major":
            row, k = _selections(experts)
            rows, weights, experts = rows[row], weights[row, k], None
            # As the rows lie, for combine.
            routing.handle.selected = row
        if len(rows) > len(out_tokens):
            raise InvalidArgumentError(f"{len(rows)} rows have come; out_tokens has room for "
                                       f"{len(out_tokens)}")
        for out, got in ((out_tokens, rows), (out_topk_weights, weights), (out_topk_idx, experts)):
            if out is not None and got is not None:
                out[:len(got)] = got

    def _combine(self, routing: TorchRouting, expert_tokens: torch.Tensor,
                 out_tokens: torch.Tensor) -> None:
        rows = expert_tokens.detach()
        if routing.layout == "expert_major":
            row = routing.handle.selected
            rows = rows.new_zeros((routing.handle.num_rows, rows.shape[1]), dtype=torch.float32) \
                .index_add_(0, row, rows[:len(row)].float()).to(rows.dtype)
        out_tokens.copy_(routing.handle.handle.combine(
            rows[:routing.handle.num_rows].contiguous()))


def _selections(experts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and places in them of what was selected here, by expert, then in the order of rows."""
    row, k = (experts >= 0).nonzero(as_tuple=True)
    order = experts[row, k].argsort(stable=True)
    return row[order], k[order]
