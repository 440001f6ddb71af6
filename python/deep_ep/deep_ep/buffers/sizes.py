# SPDX-License-Identifier: MIT
"""What callers of V2 ask before they communicate: sizes, domains of ranks, SMs."""
from __future__ import annotations

import math
from typing import Any, Sequence

import torch
import weft

from ..utils.envs import domain_of, get_nvlink_gbs, get_rdma_gbs
from ..utils.math import align

SIZE_BYTES = 2 << 20  # of which sizes are multiples
TENSOR_BYTES = 32
COLUMN_BYTES = 16  # to a multiple of which columns of scales are long
LEAST_SMS, LEAST_SMS_ALONE = 4, 64  # alone: nothing computes beside it
SPARE = 1.25


class Sizes:
    """Part of ElasticBuffer."""

    _comm: weft.Communicator
    allow_hybrid_mode: bool

    @staticmethod
    def get_buffer_size_hint(group: Any, num_max_tokens_per_rank: int, hidden: int,
                             num_topk: int = 0, use_fp8_dispatch: bool = False,
                             allow_hybrid_mode: bool = True,
                             allow_multiple_reduction: bool = True) -> int:
        """The rows of one batch at worst, with what comes with them, and their answers. weft takes
        as much as batches need, and does not look at it."""
        num_rows = num_max_tokens_per_rank * group.size()
        scales = hidden // 32 if use_fp8_dispatch else 0
        row_bytes = hidden * (1 if use_fp8_dispatch else 2) + scales + 12 * num_topk + 4
        return max(align(num_rows * (row_bytes + 2 * hidden), SIZE_BYTES), SIZE_BYTES)

    @staticmethod
    def get_engram_storage_size_hint(num_entries: int, hidden: int, num_max_tokens_per_rank: int,
                                     dtype: torch.dtype = torch.bfloat16) -> tuple[int, int]:
        entry_bytes = align(hidden * dtype.itemsize, TENSOR_BYTES)
        return (align(entry_bytes * num_max_tokens_per_rank, SIZE_BYTES),
                align(entry_bytes * num_entries, SIZE_BYTES))

    @staticmethod
    def get_pp_buffer_size_hint(num_max_tensor_bytes: int, num_max_inflight_tensors: int) -> int:
        """To and from two neighbours."""
        return align(4 * align(num_max_tensor_bytes, TENSOR_BYTES) * num_max_inflight_tensors,
                     SIZE_BYTES)

    @staticmethod
    def get_agrs_num_max_session_bytes(group: Any, shapes: Any, dtype: torch.dtype) -> int:
        listed, _ = shapes_of(shapes)
        return sum(align(group.size() * math.prod(shape) * dtype.itemsize, TENSOR_BYTES)
                   for shape in listed)

    @staticmethod
    def get_agrs_buffer_size_hint(group: Any, num_max_session_bytes: int) -> int:
        return align(num_max_session_bytes, SIZE_BYTES)

    def get_physical_domain_size(self) -> tuple[int, int]:
        """Nodes, and ranks of a node."""
        return domain_of(self._comm)

    def get_logical_domain_size(self) -> tuple[int, int]:
        return self.get_physical_domain_size() if self.allow_hybrid_mode \
            else (1, self._comm.num_ranks)

    def get_theoretical_num_sms(self, num_experts: int, num_topk: int, num_scaleout_topk: int = 0,
                                rdma_gbs: float = 0, nvlink_gbs: float = 0,
                                sm_read_gbs: float = 200, sm_write_gbs: float = 50) -> int:
        """As many SMs as keep the slowest links busy, if tokens choose experts evenly."""
        assert num_scaleout_topk == 0, "groups of experts are not modelled"
        num_nodes, ranks_per_node = self.get_physical_domain_size()
        row_gbs = math.inf  # bytes of rows that links let come to a rank, per second
        if ranks_per_node > 1:
            row_gbs = (nvlink_gbs or get_nvlink_gbs()) / (1 - 1 / ranks_per_node)
        if num_nodes > 1:
            row_gbs = min(row_gbs, (rdma_gbs or get_rdma_gbs()) / (1 - 1 / num_nodes))
        num_sms = LEAST_SMS
        if row_gbs < math.inf:
            num_ranks = self._comm.num_ranks
            num_topk = min(num_topk, num_experts)
            elsewhere = math.comb(num_experts - num_experts // num_ranks, num_topk)
            rows_of_token = num_ranks * (1 - elsewhere / math.comb(num_experts, num_topk))
            busy = max(1 / sm_write_gbs, 1 / (max(rows_of_token, 1) * sm_read_gbs))
            num_sms = max(LEAST_SMS, math.ceil(SPARE * row_gbs * busy))
        if not self.prefer_overlap_with_compute:
            num_sms = max(num_sms, LEAST_SMS_ALONE)
        if self._comm.is_on_gpu:
            device = torch.cuda.get_device_properties(self._comm.cuda_device)
            num_sms = min(num_sms, device.multi_processor_count)
        return align(num_sms, 2)

    def get_theoretical_num_qps(self, num_sms: int) -> int:
        """weft has QPs of its own, so it is a number that DeepEP's callers may pass on."""
        return min(num_sms * 16 + 1 if self.allow_hybrid_mode else 9, self.num_allocated_qps)


def shapes_of(shapes: Any) -> tuple[Sequence[tuple[int, ...]], bool]:
    """A list of shapes, and whether a list was given."""
    is_list = isinstance(shapes[0], tuple)
    return (shapes if is_list else (shapes,)), is_list


def by_columns(scales: torch.Tensor) -> torch.Tensor:
    """Column after column, each aligned."""
    num_aligned = COLUMN_BYTES // scales.element_size()
    return torch.empty_strided(
        scales.shape, (1, align(len(scales), num_aligned)), dtype=scales.dtype,
        device=scales.device).copy_(scales)
