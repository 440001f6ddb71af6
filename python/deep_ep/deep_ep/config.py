# SPDX-License-Identifier: MIT
"""Config, and how many bytes DeepEP would want: for callers that compute and pass them on. weft has
no chunks and sizes its own memory, so of all this only num_sms counts."""
from __future__ import annotations

BYTES_PER_ALIGNMENT = 128
RANKS_PER_NODE = 8


def _round_up(number: int, multiple: int) -> int:
    return (number + multiple - 1) // multiple * multiple


def num_nodes_of(num_ranks: int) -> int:
    """As DeepEP counts, whose nodes have 8 ranks; here the last one may have fewer."""
    return (num_ranks + RANKS_PER_NODE - 1) // RANKS_PER_NODE


class Config:
    """SMs of an operation, and the sizes of chunks that DeepEP has."""

    def __init__(self, num_sms: int = 20, num_max_nvl_chunked_send_tokens: int = 6,
                 num_max_nvl_chunked_recv_tokens: int = 256,
                 num_max_rdma_chunked_send_tokens: int = 6,
                 num_max_rdma_chunked_recv_tokens: int = 256):
        nvl_send, nvl_recv = num_max_nvl_chunked_send_tokens, num_max_nvl_chunked_recv_tokens
        rdma_send, rdma_recv = num_max_rdma_chunked_send_tokens, num_max_rdma_chunked_recv_tokens
        if num_sms < 0 or min(nvl_send, nvl_recv, rdma_send, rdma_recv) <= 0:
            raise RuntimeError(f"Config: num_sms {num_sms} must be 0 or more, chunks 1 or more")
        if nvl_send >= nvl_recv or rdma_send >= rdma_recv or rdma_send > rdma_recv // 2:
            raise RuntimeError(
                f"Config: chunks to send ({nvl_send}, {rdma_send}) must be smaller than those to "
                f"receive ({nvl_recv}, {rdma_recv}), over RDMA at most half of them")
        self.num_sms = num_sms
        self._nvl_recv = nvl_recv
        self._rdma_recv = _round_up(rdma_recv, rdma_send)

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        if num_ranks > RANKS_PER_NODE and self.num_sms % 2:
            raise RuntimeError(f"num_sms {self.num_sms} must be even over several nodes")
        words = (2 * num_nodes_of(num_ranks) + 3) * 4
        tokens = self._nvl_recv * (hidden_bytes + 8 + 1024 + 512 + 512)
        channels = self.num_sms // 2
        return _round_up(channels * min(num_ranks, RANKS_PER_NODE) * (words + tokens),
                         BYTES_PER_ALIGNMENT)

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        if num_ranks <= RANKS_PER_NODE:
            return 0
        tokens = self._rdma_recv * (hidden_bytes + 8 + 1024 + 512 + 512 + 16)
        num_nodes, channels = num_nodes_of(num_ranks), self.num_sms // 2
        return _round_up(2 * channels * num_nodes * (18 * 4 + tokens), BYTES_PER_ALIGNMENT)


def low_latency_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int,
                          num_experts: int) -> int:
    tokens = num_max_dispatch_tokens_per_rank
    scale_bytes = 4 * (hidden // 128)
    dispatch = 16 + max(2 * hidden, hidden + scale_bytes)
    combine = scale_bytes + 2 * hidden
    send = max(tokens * dispatch, num_experts * tokens * combine)
    receive = num_experts * tokens * max(dispatch, combine)
    total = 2 * (send + receive + _round_up(4 * num_experts, BYTES_PER_ALIGNMENT))
    return (total // BYTES_PER_ALIGNMENT + 1) * BYTES_PER_ALIGNMENT


# By number of ranks: tokens of a chunk, nvl_send, nvl_recv, rdma_send, rdma_recv.
_DISPATCH = {2: (24, 256, 6, 128), 4: (6, 256, 6, 128), 8: (6, 256, 6, 128),
             16: (36, 288, 20, 128), 24: (32, 288, 8, 128), 32: (32, 288, 8, 128),
             48: (32, 288, 8, 128), 64: (32, 288, 8, 128), 96: (20, 480, 12, 128),
             128: (20, 560, 12, 128), 144: (32, 720, 12, 128), 160: (28, 720, 12, 128)}
_COMBINE = {2: (10, 256, 6, 128), 4: (9, 256, 6, 128), 8: (4, 256, 6, 128),
            16: (4, 288, 12, 128), 24: (1, 288, 8, 128), 32: (1, 288, 8, 128),
            48: (1, 288, 8, 128), 64: (1, 288, 8, 128), 96: (1, 480, 8, 128),
            128: (1, 560, 8, 128), 144: (2, 720, 8, 128), 160: (2, 720, 8, 128)}


def dispatch_config(num_sms: int, num_ranks: int) -> Config:
    return _of_table(_DISPATCH, num_sms, num_ranks)


def combine_config(num_sms: int, num_ranks: int) -> Config:
    return _of_table(_COMBINE, num_sms, num_ranks)


def _of_table(table: dict[int, tuple[int, ...]], num_sms: int, num_ranks: int) -> Config:
    """Numbers of ranks that DeepEP refuses have the sizes of the next one."""
    assert num_ranks > 0, f"no default config for {num_ranks} ranks"
    return Config(num_sms, *table[min((n for n in table if n >= num_ranks), default=max(table))])
