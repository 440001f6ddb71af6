# SPDX-License-Identifier: MIT
"""Buffer, which callers of DeepEP's V1 make."""
from __future__ import annotations

from typing import Any

import torch
import weft
from weft.eager import eager_methods

from . import config as configs
from .config import Config
from .events import EventHandle, EventOverlap
from .exchange import Exchange
from .low_latency import LowLatencyFunctions
from .normal import NormalFunctions


@eager_methods
class Buffer(NormalFunctions, LowLatencyFunctions, Exchange):
    """Communication of a group of ranks. Constructor and destroy() are collective, and so are all
    operations. The sizes of buffers are not needed, since weft sizes its own. use_fabric (SGLang)
    and num_nvl_peers (TensorRT-LLM) change nothing: weft finds out how ranks reach each other."""

    num_sms = 20

    def __init__(self, group: Any, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0,
                 low_latency_mode: bool = False, num_qps_per_rank: int = 24,
                 allow_nvlink_for_low_latency_mode: bool = True, allow_mnnvl: bool = False,
                 explicitly_destroy: bool = False, enable_shrink: bool = False,
                 comm: Any = None, use_fabric: bool | None = None,
                 num_nvl_peers: int | None = None) -> None:
        self.rank, self.group_size = self._meet(
            group, comm, (enable_shrink, num_nvl_bytes, num_rdma_bytes))
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode, self.enable_shrink = low_latency_mode, enable_shrink
        self.explicitly_destroy = explicitly_destroy
        self._local: dict[bool, torch.Tensor] = {}
        self._open_normal()
        self._open_low_latency()

    def destroy(self) -> None:
        assert self.explicitly_destroy, "explicitly_destroy must be set"
        self._leave()

    # ------------------------------------------------------------ what callers ask

    @staticmethod
    def is_sm90_compiled() -> bool:
        return True  # FP8 rows are on every machine

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        assert new_num_sms % 2 == 0, "The SM count must be even"
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        return EventOverlap(EventHandle())

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int,
                                       num_ranks: int, num_experts: int) -> int:
        return configs.low_latency_size_hint(num_max_dispatch_tokens_per_rank, hidden, num_experts)

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        return configs.dispatch_config(Buffer.num_sms, num_ranks)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        return configs.combine_config(Buffer.num_sms, num_ranks)

    def get_local_buffer_tensor(self, dtype: torch.dtype, size: torch.Size | None = None,
                                offset: int = 0, use_rdma_buffer: bool = False) -> torch.Tensor:
        """Memory of the size that was asked for, which weft does not use; offset in bytes."""
        if use_rdma_buffer not in self._local:
            num_bytes = self.num_rdma_bytes if use_rdma_buffer else self.num_nvl_bytes
            self._local[use_rdma_buffer] = torch.zeros(
                num_bytes, dtype=torch.uint8, device=self._device())
        whole = self._local[use_rdma_buffer][offset:]
        whole = whole[:whole.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
        return whole if size is None else whole[:size.numel()].view(size)

    def _num_blocks(self, config: Config | None) -> int:
        if not isinstance(config, (Config, type(None))):
            raise weft.InvalidArgumentError(
                f"config is a {type(config).__name__}; it must be a Config")
        return self._blocks_of(config.num_sms if config else Buffer.num_sms)
