# SPDX-License-Identifier: MIT
"""Trains a MoE layer whose experts are spread over the ranks, on CPUs or GPUs:

    torchrun --nproc-per-node 4 examples/moe_layer.py
"""
import torch
import torch.distributed as dist
import weft.torch

TOKENS, HIDDEN, EXPERTS, TOPK, STEPS = 64, 32, 8, 2, 60


class MoeLayer(torch.nn.Module):
    def __init__(self, comm: weft.Communicator):
        super().__init__()
        self.gate = torch.nn.Linear(HIDDEN, EXPERTS)
        self.dispatcher = weft.torch.TokenDispatcher(comm, EXPERTS, TOPK, arena_bytes=1 << 22)
        self.experts = torch.nn.ModuleList(
            torch.nn.Linear(HIDDEN, HIDDEN) for _ in self.dispatcher.ep.experts_of(comm.rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, idx = self.gate(x).softmax(-1).topk(TOPK)
        got = self.dispatcher.dispatch(x, idx, weights)
        y = torch.zeros_like(got.rows)
        for local, expert in enumerate(self.experts):
            row, k = (got.topk_idx == local).nonzero(as_tuple=True)
            y = y.index_add(0, row, expert(got.rows[row]) * got.topk_weights[row, k, None])
        return self.dispatcher.combine(y, got.routing)


def main() -> None:
    on_gpus = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpus else "gloo")
    rank = dist.get_rank()
    if on_gpus:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    device = "cuda" if on_gpus else "cpu"
    with weft.torch.communicator() as comm:
        torch.manual_seed(rank)  # each rank has experts, and data, of its own
        layer = MoeLayer(comm).to(device)
        for parameter in layer.gate.parameters():  # but the gate is the same
            dist.broadcast(parameter.data, 0)
        optimiser = torch.optim.Adam(layer.parameters(), lr=1e-2)
        x = torch.randn(TOKENS, HIDDEN, device=device)
        for step in range(STEPS):
            loss = (layer(x) - x.roll(1, dims=1)).square().mean()
            optimiser.zero_grad()
            loss.backward()
            for parameter in layer.gate.parameters():
                dist.all_reduce(parameter.grad)
            optimiser.step()
            if rank == 0 and step in (0, STEPS - 1):
                print(f"step {step}: loss of rank 0 is {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


main()
