# SPDX-License-Identifier: MIT
"""Times of the gate of DeepSeek-V3 by weft and by PyTorch with two threads, in one run, taking
turns: 4096 tokens, 256 experts, 4 of 8 groups, top-8, a bias, BF16 logits. Medians.

    weft run -n 1 -- python3 tests/python/gate_speed.py
"""
from __future__ import annotations

import statistics
import time

import torch
import weft
from weft import gate

ROUNDS, NUM_TOKENS, NUM_EXPERTS = 40, 4096, 256
RULE = gate.Rule(8, weft.GateScore.SIGMOID, scale=2.5, num_groups=8, num_kept_groups=4)


def by_torch(logits: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = logits.float().sigmoid()
    groups = (scores + bias).view(len(logits), 8, -1)
    kept = groups.topk(2)[0].sum(-1).topk(4, sorted=False)[1]
    mask = torch.ones(len(logits), 8, dtype=torch.bool).scatter_(1, kept, False)
    idx = groups.masked_fill(mask[:, :, None], float("-inf")).flatten(1).topk(8)[1]
    weights = scores.gather(1, idx)
    return idx, weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5


def main() -> None:
    torch.set_num_threads(2)
    torch.manual_seed(1)
    logits = torch.randn(NUM_TOKENS, NUM_EXPERTS).bfloat16()
    bias = 0.1 * torch.randn(NUM_EXPERTS)
    with weft.Communicator.from_env() as comm:
        ways = {"weft": lambda: gate.choose(comm, logits, RULE, bias=bias),
                "PyTorch": lambda: by_torch(logits, bias)}
        wall_ms: dict[str, list[float]] = {name: [] for name in ways}
        cpu_ms: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, run in ways.items():
                began, used = time.perf_counter(), time.process_time()
                run()
                wall_ms[name].append(1e3 * (time.perf_counter() - began))
                cpu_ms[name].append(1e3 * (time.process_time() - used))
        for name in ways:
            print(f"{name}: {statistics.median(wall_ms[name]):.2f} ms, least "
                  f"{min(wall_ms[name]):.2f}; of cores {statistics.median(cpu_ms[name]):.2f} ms, "
                  f"least {min(cpu_ms[name]):.2f}")


if __name__ == "__main__":
    main()
