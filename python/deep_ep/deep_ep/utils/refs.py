# SPDX-License-Identifier: MIT
"""What dispatch and combine of V2 must give, by collectives of torch.distributed and plain sums."""
from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist

from .envs import get_global_seed

PRIME = 131071


def _exchange(rows: torch.Tensor, send: list[int], receive: list[int]) -> torch.Tensor:
    """Rows that lie in order of their receivers, as they lie in order of their senders."""
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:])).view(torch.uint8)  # any type
    out = flat.new_empty((sum(receive), flat.shape[1]))
    dist.all_to_all_single(out, flat, receive, send)
    return out.view(rows.dtype).view(len(out), *rows.shape[1:])


def dispatch(x: Any, topk_idx: torch.Tensor, topk_weights: torch.Tensor | None,
             num_max_tokens_per_rank: int, num_experts: int) -> tuple[Any, ...]:
    """Rows of tokens, in order of source rank and token. Returns x, topk_idx (local ids, or -1),
    topk_weights, source rank * num_max_tokens_per_rank + token, and [R] rows of each source."""
    num_ranks, rank = dist.get_world_size(), dist.get_rank()
    num_local = num_experts // num_ranks
    owners = topk_idx.div(num_local, rounding_mode="floor").masked_fill(topk_idx < 0, -1)
    tokens = [(owners == r).any(1).nonzero().squeeze(1) for r in range(num_ranks)]
    order, send = torch.cat(tokens), [len(each) for each in tokens]
    received = torch.empty(num_ranks, dtype=torch.int32, device=topk_idx.device)
    dist.all_to_all_single(received, torch.tensor(send, dtype=torch.int32, device=topk_idx.device))
    receive = received.tolist()

    def carry(rows: torch.Tensor | None) -> torch.Tensor | None:
        return None if rows is None else _exchange(rows[order], send, receive)

    recv_idx = carry(topk_idx) - rank * num_local
    recv_idx.masked_fill_((recv_idx < 0) | (recv_idx >= num_local), -1)
    src_idx = carry(torch.arange(len(topk_idx), dtype=torch.int32, device=topk_idx.device)
                    + rank * num_max_tokens_per_rank)
    recv_x = tuple(map(carry, x)) if isinstance(x, tuple) else carry(x)
    return recv_x, recv_idx, carry(topk_weights), src_idx, torch.tensor(receive, dtype=torch.int32)


def generate_pre_combine_data(src_token_global_idx: torch.Tensor, num_max_tokens_per_rank: int,
                              num_topk: int, hidden: int) -> torch.Tensor:
    """[tokens, num_topk, hidden] of BF16, that follow from the global index of a token: sines, so
    that any two choices differ."""
    most = dist.get_world_size() * num_max_tokens_per_rank * num_topk
    choice = torch.arange(num_topk, device=src_token_global_idx.device)
    seeds = src_token_global_idx.unsqueeze(1) * num_topk + choice
    slopes = ((seeds * PRIME % most).float() + 1) / most
    columns = torch.arange(1, hidden + 1, dtype=torch.float32, device=slopes.device)
    return torch.sin(slopes.unsqueeze(2) * columns
                     + math.sin(get_global_seed())).to(torch.bfloat16)


def ordered_accumulate(data: torch.Tensor, initial_value: torch.Tensor | None = None
                       ) -> torch.Tensor:
    """Sums [tokens, K, hidden] over K, in order, in fp32, rounded once."""
    total = torch.zeros_like(data[:, 0], dtype=torch.float32) if initial_value is None \
        else initial_value.float().clone()
    for term in data.unbind(1):
        total += term.float()
    return total.to(data.dtype)


def _sum_groups(y: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """Replaces the last choice of each group of a token's by the group's sum, rounded, and the
    others by 0. groups: [tokens, K]."""
    out = torch.zeros_like(y)
    num_topk = y.shape[1]
    for k in range(num_topk):
        is_mine = groups == groups[:, k:k + 1]
        is_last = ~is_mine[:, k + 1:].any(1)
        total = ordered_accumulate(y.masked_fill(~is_mine.unsqueeze(2), 0))
        out[:, k] = total.masked_fill(~is_last.unsqueeze(1), 0)
    return out


def combine(y: torch.Tensor, topk_idx: torch.Tensor, num_scaleout_ranks: int,
            num_scaleup_ranks: int, num_experts: int, bias: Any, reduce_in_local: bool,
            reduce_in_scaleup: bool) -> torch.Tensor:
    """[tokens, hidden]: sums of y [tokens, K, hidden], those of a rank and of a scale-up domain
    first, if so asked."""
    num_local = num_experts // (num_scaleout_ranks * num_scaleup_ranks)
    for is_asked, num_grouped in ((reduce_in_local, num_local),
                                  (reduce_in_scaleup, num_local * num_scaleup_ranks)):
        if is_asked:
            y = _sum_groups(y, topk_idx.div(num_grouped, rounding_mode="floor"))
    terms = bias if isinstance(bias, tuple) else (bias,)
    floats = [term.float() for term in terms if term is not None]
    return ordered_accumulate(y, sum(floats[1:], floats[0]) if floats else None)
