# SPDX-License-Identifier: MIT
"""How long a MoE layer takes beside its experts, by transformers' own "all_to_all" and by
weft.transformers, in ms, and the ratio: the exchange alone, which is rows to the ranks of their
experts and back; what is not experts' time, forward; and that of forward and backward.

    torchrun --nproc-per-node 2 bench/python/transformers_speed.py [--real-time]

Medians, of the slower rank, of SAMPLES times CALLS calls one after another; samples alternate.
--real-time: runs before all else that wants the cores, which takes root.
"""
import os
import sys
import time

import torch
import torch.distributed as dist
import transformers.distributed.expert_parallel as theirs
import weft.transformers
from torch.distributed.device_mesh import init_device_mesh

HIDDEN, TOPK, EXPERTS, DTYPE = 2048, 8, 64, torch.bfloat16
SAMPLES, CALLS = 11, 5


class Experts(torch.nn.Module):
    """An expert returns its rows, weighed; its time is counted."""

    num_experts = EXPERTS
    seconds = 0.0

    def forward(self, x, topk_idx, topk_weights):
        start = time.perf_counter()
        sums = x * topk_weights.sum(1, keepdim=True)
        Experts.seconds += time.perf_counter() - start
        return sums


def measure(functions):
    """ms of a call of each."""
    times = torch.zeros(SAMPLES, len(functions), dtype=torch.float64)
    for sample in times:
        for i, function in enumerate(functions):
            function()
            dist.barrier()
            Experts.seconds, start = 0.0, time.perf_counter()
            for _ in range(CALLS):
                function()
            sample[i] = (time.perf_counter() - start - Experts.seconds) / CALLS
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return (1000 * times.median(0).values).tolist()


def main():
    torch.set_num_threads(1)
    if "--real-time" in sys.argv:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    dist.init_process_group("gloo")
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    Experts.num_experts = EXPERTS // num_ranks
    mesh = init_device_mesh("cpu", (1, num_ranks), mesh_dim_names=("tp", "ep"))
    for mode in ("own batches", "one batch"):
        meshes = mesh["ep"], mesh["tp" if mode == "own batches" else "ep"]
        layers = [make(Experts(), *meshes)
                  for make in (theirs.AllToAllEP, weft.transformers.WeftEP)]
        for num_tokens in (1, 4, 16, 64, 128, 512):
            torch.manual_seed(num_tokens + (rank if mode == "own batches" else 0))
            x = torch.randn(num_tokens, HIDDEN).to(DTYPE)
            weights, idx = torch.randn(num_tokens, EXPERTS).softmax(-1).topk(TOPK)

            def exchange(layer):
                """Weft's without picking rows for each choice and summing what comes of them."""
                if layer is layers[0]:
                    return infer(layer)
                with torch.no_grad():
                    if layer.shares_batch:
                        return layer._ranks.collectives.all_reduce(x)
                    return layer._exchange(x, idx, weights, lambda rows, *_: rows)

            def infer(layer):
                with torch.no_grad():
                    return layer(x, idx, weights.to(DTYPE))

            def train(layer):
                leaf = x.clone().requires_grad_()
                layer(leaf, idx, weights.to(DTYPE)).sum().backward()

            torch.testing.assert_close(infer(layers[0]), infer(layers[1]), rtol=0.05, atol=0.05)
            figures = []
            for step in (exchange, infer, train):
                old, new = measure([lambda: step(layers[0]), lambda: step(layers[1])])
                figures += [f"{old:7.2f} {new:6.2f} {old / new:5.1f}x"]
            if rank == 0:
                print(f"{mode:12} {num_tokens:4} |", " | ".join(figures), flush=True)
    dist.destroy_process_group()


main()
