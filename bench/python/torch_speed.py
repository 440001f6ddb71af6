# SPDX-License-Identifier: MIT
"""Times of torch.distributed's operations by backend weft and by gloo, in one run, taking turns:
medians of all calls of a rank, one after the other.

    torchrun --nproc-per-node 2 bench/python/torch_speed.py
"""
from __future__ import annotations

import statistics
import time
from typing import Any, Callable

import torch
import torch.distributed as dist

ROUNDS = 8
SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "8 MiB": 8 << 20}


def all_reduce(x: torch.Tensor, group: Any) -> Callable[[], Any]:
    return lambda: dist.all_reduce(x, group=group)


def all_to_all(x: torch.Tensor, group: Any) -> Callable[[], Any]:
    out = torch.empty_like(x)
    return lambda: dist.all_to_all_single(out, x, group=group)


def all_to_all_by_splits(x: torch.Tensor, group: Any) -> Callable[[], Any]:
    out, splits = torch.empty_like(x), [len(x) // dist.get_world_size()] * dist.get_world_size()
    return lambda: dist.all_to_all_single(out, x, splits, splits, group=group)


def all_gather(x: torch.Tensor, group: Any) -> Callable[[], Any]:
    rows = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    return lambda: dist.all_gather(rows, x, group=group)


def broadcast(x: torch.Tensor, group: Any) -> Callable[[], Any]:
    return lambda: dist.broadcast(x, 0, group=group)


def ping_pong(x: torch.Tensor, group: Any) -> Callable[[], Any]:
    def call() -> None:
        if dist.get_rank() == 0:
            dist.send(x, 1, group)
            dist.recv(x, 1, group)
        elif dist.get_rank() == 1:
            dist.recv(x, 0, group)
            dist.send(x, 0, group)

    return call


def start(x: torch.Tensor, group: Any) -> Callable[[], Any]:
    """What an asynchronous call costs its caller; the wait after it does not count."""
    return lambda: dist.all_reduce(x, group=group, async_op=True)


def measure(calls: dict[str, Callable[[], Any]], num_calls: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            dist.barrier()
            for _ in range(num_calls):
                begin = time.perf_counter()
                work = call()
                times[name].append((time.perf_counter() - begin) * 1e6)
                if work is not None:
                    work.wait()
    return times


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {"gloo": dist.group.WORLD, "weft": dist.new_group(backend="weft")}
    if dist.get_rank() == 0:
        print(f"{'us':22}{'size':>8}{'gloo':>10}{'weft':>10}{'ratio':>7}   fastest tenth")
    for operation in (all_reduce, all_to_all, all_to_all_by_splits, all_gather, broadcast,
                      ping_pong, start):
        for label, num_bytes in SIZES.items():
            calls = {name: operation(torch.zeros(num_bytes // 4), group)
                     for name, group in groups.items()}
            times = measure(calls, 200 if num_bytes < 1 << 20 else 15)
            gloo, weft = (statistics.median(times[name]) for name in ("gloo", "weft"))
            low = [statistics.quantiles(times[name], n=10)[0] for name in ("gloo", "weft")]
            if dist.get_rank() == 0:
                print(f"{operation.__name__:22}{label:>8}{gloo:10.1f}{weft:10.1f}"
                      f"{gloo / weft:7.1f}   {low[0]:.1f} {low[1]:.1f} {low[0] / low[1]:.1f}",
                      flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
