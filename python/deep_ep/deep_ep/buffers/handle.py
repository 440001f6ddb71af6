# SPDX-License-Identifier: MIT
"""What a dispatch of V2 leaves for one more dispatch and for combine."""
from __future__ import annotations

from typing import Any

import torch
from weft.expert_parallel import ints_at

from ..routing import Routing
from ..utils.math import align


class EPHandle:
    """DeepEP's fields. A copy has the same routing. R is the number of ranks of a scale-up domain,
    L of local experts, n of rows that came, or the bound for them.

    - topk_idx: [N, K], a copy if dispatch() was asked for one
    - num_recv_tokens, num_expanded_tokens: rows; without CPU sync the most that there can be
    - num_recv_tokens_per_expert_list: aligned counts; [] without CPU sync
    - psum_num_recv_tokens_per_scaleup_rank: int32 [R], inclusive sums of rows
    - psum_num_recv_tokens_per_expert: int32 [L]; compact: inclusive sums of aligned counts;
      expanded: where an expert's rows end, before the gap
    - num_unaligned_recv_tokens_per_expert: int32 [L], of expanded rows, else None
    - recv_src_metadata: int32 [n, K + 2]: source rank * num_max_tokens_per_rank + token; source
      rank * K + the token's last choice that came here; for each choice the expanded row, or -1
    - dst_buffer_slot_idx, token_metadata_at_forward, channel_linked_list: of DeepEP's own kernels
    """

    dst_buffer_slot_idx: torch.Tensor
    token_metadata_at_forward = channel_linked_list = None
    num_unaligned_recv_tokens_per_expert: torch.Tensor | None = None

    choice_rows: torch.Tensor | None = None  # [n, K] expanded rows, or -1
    is_elsewhere: torch.Tensor | None = None  # [n, K] of compact rows: choices of other ranks

    def __init__(self, routing: Routing, topk_idx: torch.Tensor, *, num_experts: int,
                 num_max_tokens_per_rank: int, expert_alignment: int, num_sms: int,
                 num_blocks: int, do_expand: bool):
        self.weft = routing
        self.topk_idx = topk_idx
        self.num_experts, self.expert_alignment = num_experts, expert_alignment
        self.num_max_tokens_per_rank, self.num_sms = num_max_tokens_per_rank, num_sms
        self.num_blocks = num_blocks  # 0: weft chooses
        self.do_expand = do_expand

    def set_counts(self, host: Any, num_nodes: int) -> None:
        """host: weft_ep_counts; None if the host does not know them, so that rows have a bound."""
        routing, counts = self.weft, self.weft.device_counts()
        ranks = counts.num_recv_per_rank.view(num_nodes, -1).sum(0)
        self.psum_num_recv_tokens_per_scaleup_rank = ranks.cumsum(0, dtype=torch.int32)
        self.psum_num_recv_tokens_per_expert = counts.first_row_per_expert + (
            counts.num_selections_per_expert if self.do_expand else counts.num_recv_per_expert)
        if self.do_expand:
            self.num_unaligned_recv_tokens_per_expert = counts.num_selections_per_expert.clone()
        self.num_recv_tokens = routing.num_rows
        self.num_recv_tokens_per_expert_list: list[int] = []
        if host is None:
            alignment, num_experts = self.expert_alignment, len(counts.num_recv_per_expert)
            choices = routing.num_rows * min(self.topk_idx.shape[1], num_experts)
            self.num_expanded_tokens = align(choices + (alignment - 1) * num_experts, alignment)
        else:
            self.num_recv_tokens_per_expert_list = ints_at(host.num_recv_per_expert,
                                                           host.num_local_experts)
            self.num_expanded_tokens = host.num_expanded_rows
        if self.do_expand:
            routing.num_expanded = self.num_expanded_tokens

    def set_rows(self, src_idx: torch.Tensor, recv_topk_idx: torch.Tensor) -> None:
        """src_idx: [n, 1], column 0 of recv_src_metadata. After expansion."""
        num_topk, is_elsewhere = self.topk_idx.shape[1], recv_topk_idx < 0
        choices = torch.arange(num_topk, dtype=torch.int32, device=src_idx.device)
        last = choices.masked_fill(is_elsewhere, -1).amax(1, keepdim=True)
        src_rank = src_idx.div(self.num_max_tokens_per_rank, rounding_mode="floor")
        rows = self.choice_rows
        if rows is None:
            self.is_elsewhere, rows = is_elsewhere, torch.full_like(is_elsewhere, -1,
                                                                    dtype=torch.int32)
        self.recv_src_metadata = torch.cat((src_idx, src_rank * num_topk + last, rows), 1)

    def tensors(self) -> list[torch.Tensor]:
        return [value for value in vars(self).values() if isinstance(value, torch.Tensor)]
