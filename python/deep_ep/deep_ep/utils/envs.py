# SPDX-License-Identifier: MIT
"""Process groups of test programs."""
from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist


def init_dist(local_rank: int, num_local_ranks: int, seed: int = 0) -> tuple[int, int, Any]:
    """Rank, number of ranks, and a group of all. The environment has the nodes: WORLD_SIZE, RANK,
    MASTER_ADDR, MASTER_PORT."""
    num_nodes, node = int(os.getenv("WORLD_SIZE", "1")), int(os.getenv("RANK", "0"))
    address, port = os.getenv("MASTER_ADDR", "127.0.0.1"), os.getenv("MASTER_PORT", "8361")
    num_ranks, rank = num_nodes * num_local_ranks, node * num_local_ranks + local_rank
    dist.init_process_group(
        backend="nccl", init_method=f"tcp://{address}:{port}", world_size=num_ranks, rank=rank,
        device_id=torch.device("cuda", local_rank))
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cuda")
    torch.cuda.set_device(local_rank)
    torch.manual_seed(seed + rank)
    return rank, num_ranks, dist.new_group(list(range(num_ranks)))
