# SPDX-License-Identifier: MIT
"""Scores of experts that favour the first rank, for test programs."""
from __future__ import annotations

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GREATEST_FACTOR, NUM_HALVINGS = 100.0, 20


def get_unbalanced_scores(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int,
                          ratio: float, precise: bool) -> torch.Tensor:
    """[tokens, experts] of float32: of the tokens' best num_topk experts rank 0 has some `ratio`
    times as many tokens as another rank; precise: chosen so, and not by chance."""
    if precise:
        return _chosen_scores(num_tokens, num_experts, num_ranks, num_topk, ratio)
    num_local = num_experts // num_ranks
    low, high = 1.0, GREATEST_FACTOR if ratio != 1.0 else 1.0
    for _ in range(NUM_HALVINGS if ratio != 1.0 else 0):
        factor = (low + high) / 2
        counts = _tokens_of_ranks(_random_scores(num_tokens, num_experts, num_local, factor),
                                  num_ranks, num_topk)
        is_more = counts[0] > ratio * counts[1:].mean()
        low, high = (low, factor) if is_more else (factor, high)
    return _random_scores(num_tokens, num_experts, num_local, low)


def _random_scores(num_tokens: int, num_experts: int, num_favoured: int, factor: float
                   ) -> torch.Tensor:
    scores = torch.rand((num_tokens, num_experts), dtype=torch.float32, device=DEVICE)
    scores[:, :num_favoured] *= factor
    return scores


def _tokens_of_ranks(scores: torch.Tensor, num_ranks: int, num_topk: int) -> torch.Tensor:
    ranks = scores.topk(num_topk).indices // (scores.shape[1] // num_ranks)
    is_there = torch.zeros((len(scores), num_ranks), dtype=torch.float32, device=scores.device)
    return is_there.scatter_(1, ranks, 1).sum(0)


def _chosen_scores(num_tokens: int, num_experts: int, num_ranks: int, num_topk: int,
                   ratio: float) -> torch.Tensor:
    """Tokens go to as many ranks as by chance, within what the ratio allows. Rank 0 is one of them
    for as many tokens as the ratio says, the others take turns."""
    num_local, num_others = num_experts // num_ranks, num_ranks - 1
    by_chance = torch.rand((num_tokens, num_experts), dtype=torch.float32,
                           device=DEVICE).topk(num_topk).indices // num_local
    is_there = torch.zeros((num_tokens, num_ranks), dtype=torch.bool, device=by_chance.device)
    widths = is_there.scatter_(1, by_chance, True).sum(1).clamp(max=int(num_others / ratio) + 1)
    num_first = round(widths.sum().item() * ratio / (num_others + ratio))
    is_full = widths == num_ranks  # these have rank 0 anyway
    order = torch.rand(num_tokens, dtype=torch.float32, device=widths.device) + is_full
    goes_first = torch.zeros_like(is_full)
    goes_first[order.argsort(descending=True)[:max(num_first, int(is_full.sum()))]] = True
    # Each of a token's further ranks is the next one of a ring.
    num_further = widths - goes_first.long()
    starts = num_further.cumsum(0) - num_further
    ranks = torch.arange(num_ranks, device=widths.device)
    has_rank = ((ranks - 1 - starts.unsqueeze(1)) % max(num_others, 1)) < num_further.unsqueeze(1)
    has_rank[:, 0] = goes_first
    # The first expert of each of its ranks is chosen for sure, further ones of these as it comes.
    scores = torch.rand((num_tokens, num_ranks, num_local), dtype=torch.float32,
                        device=widths.device) * 0.5
    scores = scores + has_rank.unsqueeze(2) * 0.5
    best = scores.argmax(2, keepdim=True)
    scores.scatter_add_(2, best, has_rank.unsqueeze(2).float())
    return scores.view(num_tokens, num_experts)
