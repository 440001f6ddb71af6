# SPDX-License-Identifier: MIT
"""HybridEPBuffer, of DeepEP's branch hybrid-ep: rows by expert, whose routing is a map [tokens,
experts], on ElasticBuffer."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import weft
from weft.eager import eager_methods
from weft.objects import Uncopied

from .buffers.elastic import ElasticBuffer, EPHandle


def indices_to_map(topk_idx: torch.Tensor, topk_weights: torch.Tensor | None, num_of_tokens: int,
                   num_of_experts: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """[tokens, experts]: which are chosen, and their weights."""
    return (_as_map(topk_idx, (topk_idx >= 0).float(), num_of_experts).bool(),
            None if topk_weights is None else _as_map(topk_idx, topk_weights, num_of_experts))


def _of_choices(probs: torch.Tensor | None, idx: torch.Tensor) -> torch.Tensor | None:
    """The other way."""
    return None if probs is None else \
        probs.float().gather(1, idx.long().clamp(min=0)).masked_fill(idx < 0, 0)


def _as_map(topk_idx: torch.Tensor, weights: torch.Tensor, num_experts: int) -> torch.Tensor:
    weights = weights.float().masked_fill(topk_idx < 0, 0)
    return weights.new_zeros((len(topk_idx), num_experts)).scatter_add_(
        1, topk_idx.long().clamp(min=0), weights)


@eager_methods
class HybridEPBuffer(Uncopied):
    """Settings of SMs, kernels and domains change nothing. Combine adds in the order of choices; of
    a map, of experts."""

    def __init__(self, group: Any, hidden_dim: int, max_num_of_tokens_per_rank: int,
                 num_local_experts: int, use_fp8: bool = False,
                 num_sms_dispatch_api: int | None = None, num_sms_combine_api: int | None = None,
                 num_sms_preprocessing_api: int | None = None,
                 num_blocks_permute: int | None = None, num_blocks_unpermute: int | None = None,
                 load_cached_kernels: bool = False, use_shared_buffer: bool = True,
                 enable_custom_allgather: bool = False,
                 num_of_hybrid_ep_ranks_per_nvlink_domain: int | None = None,
                 use_mnnvl: bool | None = None) -> None:
        self._buffer = ElasticBuffer(group, num_max_tokens_per_rank=max_num_of_tokens_per_rank,
                                     hidden=hidden_dim, use_fp8_dispatch=use_fp8)
        self.group, self.rank, self.group_size = group, group.rank(), group.size()
        self._num_sms_dispatch = num_sms_dispatch_api or 0
        self._num_sms_combine = num_sms_combine_api or 0
        self.configurer = SimpleNamespace(buffer_config=SimpleNamespace(
            hidden_dim=hidden_dim, max_num_of_tokens_per_rank=max_num_of_tokens_per_rank,
            num_of_experts_per_rank=num_local_experts))

    def _choices(self, topk_idx: Any, topk_weights: Any, routing_map: Any, probs: Any
                 ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Indices and weights. Of a map there are as many choices as any token of any rank has."""
        if topk_idx is not None:
            return topk_idx, topk_weights
        if routing_map is None or routing_map.dtype != torch.bool:
            raise weft.InvalidArgumentError("topk_idx, or a routing_map of bool, must be given")
        most = int(routing_map.sum(1).max()) if len(routing_map) else 0
        counts = self._buffer._comm.host_all_gather(most.to_bytes(4, "little"))
        num_topk = max(1, *(int.from_bytes(count, "little") for count in counts))
        is_chosen, idx = routing_map.byte().sort(dim=1, descending=True, stable=True)
        idx = idx[:, :num_topk].masked_fill(is_chosen[:, :num_topk] == 0, -1)
        return idx, _of_choices(probs, idx)

    def dispatch_with_permute(
            self, *, hidden: torch.Tensor, topk_idx: torch.Tensor | None = None,
            topk_weights: torch.Tensor | None = None, routing_map: torch.Tensor | None = None,
            probs: torch.Tensor | None = None, scaling_factor: torch.Tensor | None = None,
            num_of_experts_per_rank: int | None = None, num_of_experts: int | None = None,
            num_permuted_tokens: int | None = None, pad_multiple: int | None = None,
            handle: EPHandle | None = None, non_blocking: bool = False,
            num_dispatched_tokens: int | None = None, fuse_permute_dispatch: bool = False
            ) -> tuple[Any, ...]:
        """Rows by expert, their weights and scales, the rows of each expert with padding, and the
        handle. num_permuted_tokens: so many rows, without waiting for the counts; non_blocking:
        without it as many as there can be."""
        if handle is None:
            idx, weights = self._choices(topk_idx, topk_weights, routing_map, probs)
            config = self.configurer.buffer_config
            how = {"topk_idx": idx, "expert_alignment": pad_multiple or 1,
                   "do_cpu_sync": num_permuted_tokens is None and not non_blocking,
                   "num_experts": num_of_experts or self.group_size * (
                       num_of_experts_per_rank or config.num_of_experts_per_rank)}
        else:
            weights = topk_weights if probs is None else _of_choices(probs, handle.topk_idx)
            how = {"handle": handle}
        rows, _, weights, handle, _ = self._buffer.dispatch(
            hidden if scaling_factor is None else (hidden, scaling_factor), topk_weights=weights,
            num_sms=self._num_sms_dispatch, do_expand=True, do_zero_padding=True, **how)
        rows, scales = (rows, None) if scaling_factor is None else rows
        most = num_permuted_tokens
        if most is not None and most < handle.num_expanded_tokens:
            handle.num_expanded_tokens = handle.weft.num_expanded = most  # further rows are lost
        rows, scales, weights = (array if array is None else array[:most]
                                 for array in (rows, scales, weights))
        counts = torch.tensor(handle.num_recv_tokens_per_expert_list, dtype=torch.int64) \
            if handle.num_recv_tokens_per_expert_list else \
            handle.weft.device_counts().num_recv_per_expert.long()
        return rows, weights, scales, counts, handle

    def combine_with_unpermute(self, *, hidden: torch.Tensor, probs: torch.Tensor | None = None,
                               handle: EPHandle, pad_multiple: int | None = None,
                               num_dispatched_tokens: int | None = None,
                               fuse_unpermute_combine: bool = False
                               ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Sums of rows by expert, and weights [tokens, experts]."""
        out, weights, _ = self._buffer.combine(hidden, handle, topk_weights=probs,
                                               num_sms=self._num_sms_combine)
        return out, None if weights is None else _as_map(handle.topk_idx, weights,
                                                         handle.num_experts)
