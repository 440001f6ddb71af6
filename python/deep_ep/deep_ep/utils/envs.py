# SPDX-License-Identifier: MIT
"""Process groups of test programs, and what machines have."""
from __future__ import annotations

import os
import random
from typing import Any

import torch
import torch.distributed as dist
import weft
import weft.torch

from . import check_nvlink_connections

__all__ = ["check_nvlink_connections", "dist_print", "domain_of", "get_global_seed",
           "get_local_seed", "get_logical_domain_size", "get_nvlink_gbs",
           "get_physical_domain_size", "get_rdma_gbs", "init_dist", "init_seed"]

NVLINK_GBS, RDMA_GBS = 450.0, 50.0  # of Hopper with NVLink 4, and of a port of 400 Gbit/s

_seeds = {"local": 0, "global": 0}
_local_rank = 0


def init_dist(local_rank: int, num_local_ranks: int, seed: int = 0) -> tuple[int, int, Any]:
    """Rank, number of ranks, and a group of all. The environment has the nodes: WORLD_SIZE, RANK,
    MASTER_ADDR, MASTER_PORT."""
    global _local_rank
    _local_rank = local_rank
    num_nodes, node = int(os.getenv("WORLD_SIZE", "1")), int(os.getenv("RANK", "0"))
    address, port = os.getenv("MASTER_ADDR", "127.0.0.1"), os.getenv("MASTER_PORT", "8361")
    num_ranks, rank = num_nodes * num_local_ranks, node * num_local_ranks + local_rank
    dist.init_process_group(
        backend="nccl", init_method=f"tcp://{address}:{port}", world_size=num_ranks, rank=rank,
        device_id=torch.device("cuda", local_rank))
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("cuda")
    torch.cuda.set_device(local_rank)
    init_seed(seed)
    return rank, num_ranks, dist.new_group(list(range(num_ranks)))


def init_seed(global_seed: int) -> None:
    """Seeds that differ from rank to rank."""
    _seeds.update({"global": global_seed, "local": global_seed + dist.get_rank()})
    torch.manual_seed(_seeds["local"])
    random.seed(_seeds["local"])


def get_local_seed() -> int:
    return _seeds["local"]


def get_global_seed() -> int:
    return _seeds["global"]


def dist_print(s: str = "", once_in_node: bool = False) -> None:
    """Prints on every rank, or on one of each node; then all ranks wait for each other."""
    if _local_rank == 0 or not once_in_node:
        print(s, flush=True)
    dist.barrier()


def domain_of(comm: weft.Communicator) -> tuple[int, int]:
    """Nodes, and ranks of a node."""
    num_nodes = 1 + max(comm.node(rank) for rank in range(comm.num_ranks))
    return num_nodes, comm.num_ranks // num_nodes


def get_physical_domain_size(group: Any) -> tuple[int, int]:
    """Nodes, and ranks of a node. Collective."""
    with weft.torch.communicator(group) as comm:
        return domain_of(comm)


def get_logical_domain_size(group: Any, allow_hybrid_mode: bool = True) -> tuple[int, int]:
    """The same, or (1, all ranks) without hybrid mode. Collective."""
    return get_physical_domain_size(group) if allow_hybrid_mode else (1, group.size())


def get_nvlink_gbs(factor: float = 0.9) -> float:
    """GB/s each way. weft does not ask the machine: callers may pass what they know."""
    return NVLINK_GBS * factor


def get_rdma_gbs(nic_name: str | None = None) -> float:
    """Likewise."""
    return RDMA_GBS
