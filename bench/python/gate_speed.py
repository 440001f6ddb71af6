# SPDX-License-Identifier: MIT
"""Times of the gate of DeepSeek-V3 by weft and by PyTorch, in one run, taking turns: 4096 tokens,
256 experts, 4 of 8 groups, top-8, a bias, BF16 logits. Medians of a call; with --tokens of others.

    PYTHONPATH=build/python python3 bench/python/gate_speed.py [--gpu] [--tokens N]

On CPUs PyTorch has two threads, weft one. On a GPU the calls of a graph follow each other.
"""
from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable

import torch
import weft
from weft import gate

ROUNDS, CALLS_OF_GRAPH, NUM_EXPERTS = 40, 20, 256
RULE = gate.Rule(8, weft.GateScore.SIGMOID, scale=2.5, num_groups=8, num_kept_groups=4)


def by_torch(logits: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = logits.float().sigmoid()
    groups = (scores + bias).view(len(logits), 8, -1)
    kept = groups.topk(2)[0].sum(-1).topk(4, sorted=False)[1]
    mask = torch.ones(len(logits), 8, dtype=torch.bool, device=logits.device)
    mask = mask.scatter_(1, kept, False)
    idx = groups.masked_fill(mask[:, :, None], float("-inf")).flatten(1).topk(8)[1]
    weights = scores.gather(1, idx)
    return idx, weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5


def on_cpu(run: Callable[[], Any]) -> Callable[[], tuple[float, float]]:
    """What takes the milliseconds that pass in a call, and those of cores."""
    def measure() -> tuple[float, float]:
        began, used = time.perf_counter(), time.process_time()
        run()
        return 1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - used)

    return measure


def in_graph(run: Callable[[], Any]) -> Callable[[], tuple[float]]:
    """What takes the milliseconds of a call on the GPU."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS_OF_GRAPH):
            run()

    def measure() -> tuple[float]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return (begin.elapsed_time(end) / CALLS_OF_GRAPH,)

    return measure


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--tokens", type=int, default=4096)
    options = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(1)
    machine = weft.Machine.CUDA if options.gpu else weft.Machine.CPU
    with weft.Communicator.from_env(machine=machine) as comm:
        device = "cuda" if options.gpu else "cpu"
        logits = torch.randn(options.tokens, NUM_EXPERTS).bfloat16().to(device)
        bias = 0.1 * torch.randn(NUM_EXPERTS).to(device)
        ways = {"weft": lambda: gate.choose(comm, logits, RULE, bias=bias),
                "PyTorch": lambda: by_torch(logits, bias)}
        for run in ways.values():
            run()
        measures = {name: in_graph(run) if options.gpu else on_cpu(run)
                    for name, run in ways.items()}
        samples: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, measure in measures.items():
                samples[name].append(measure())
        for name, taken in samples.items():
            texts = [f"{statistics.median(of_one):.4f} ms{what}, least {min(of_one):.4f}"
                     for of_one, what in zip(zip(*taken), ("", " of cores"))]
            print(f"{name}: {'; '.join(texts)}")


if __name__ == "__main__":
    main()
