# SPDX-License-Identifier: MIT
"""A layer of experts whose ranks may die. Each expert has copies on two ranks. After a death the
others go on: from the copies that are left they make two of each expert again. Here a rank kills
itself in the middle of a step: --kill RANK STEP.

    PYTHONPATH=build/python build/weft run -n 4 --grace 60 -- python3 examples/go_on.py --kill 2 50
"""
import os
import signal
import sys
import threading
import time

import numpy as np
import weft

EXPERTS, HIDDEN, TOKENS, STEPS = 8, 64, 16, 300


def two_copies(num_ranks):
    """The ranks of each expert."""
    return [sorted({expert % num_ranks, (expert + 1) % num_ranks}) for expert in range(EXPERTS)]


class Layer:
    """Expert e multiplies by its weights."""

    def __init__(self, comm, expert_ranks):
        self.comm, self.expert_ranks = comm, expert_ranks
        self.ep = weft.ExpertParallel(comm, EXPERTS, expert_ranks=expert_ranks)
        self.handle = self.ep.handle(num_topk=2)
        self.arena = weft.Arena(comm, 1 << 20)
        self.weights = comm.heap_empty((EXPERTS, HIDDEN), np.float32)  # row i: local expert i

    def forward(self, x, topk_idx):
        self.handle.layout(topk_idx)
        self.handle.notify()
        received = self.handle.dispatch(x, topk_idx=topk_idx, arena=self.arena)
        chosen = received.topk_idx[..., None]
        received.x[:] *= np.where(chosen >= 0, self.weights[chosen[..., 0]], 0).sum(axis=1)
        return self.handle.combine(received.x)


def go_on(layer):
    """The layer of the ranks that are left, which has two copies of each expert again."""
    comm = layer.comm.shrink()
    numbers = {comm.parent_rank(rank): rank for rank in range(comm.num_ranks)}
    left = Layer(comm, [[numbers[rank] for rank in ranks if rank in numbers]
                        for ranks in layer.expert_ranks])
    left.weights[:] = layer.weights  # a rank has the experts that it had
    layer.comm.destroy()
    whole = Layer(comm, two_copies(comm.num_ranks))
    left.ep.move_experts(whole.ep, [left.weights], [whole.weights])
    return whole


def main():
    comm = weft.Communicator.from_env()
    rank = comm.rank
    layer = Layer(comm, two_copies(comm.num_ranks))
    experts = np.array(layer.ep.experts_of(rank), np.float32)
    layer.weights[:len(experts)] = experts[:, None] + 1
    victim, last_step = map(int, sys.argv[2:]) if sys.argv[1:2] == ["--kill"] else (-1, -1)
    draw, step = np.random.default_rng(rank), 0
    while True:
        if (rank, step) == (victim, last_step):
            threading.Timer(draw.random() / 500, os.kill, (os.getpid(), signal.SIGKILL)).start()
        x = draw.integers(-9, 9, (TOKENS, HIDDEN)).astype(np.float32)
        topk_idx = np.argsort(draw.random((TOKENS, EXPERTS)), axis=1)[:, :2].astype(np.int32)
        try:
            if step == STEPS:
                layer.comm.host_barrier()  # nobody leaves whom another one may still need
                break
            out = layer.forward(x, topk_idx)
        except weft.RankFailedError as error:
            begin = time.monotonic()
            layer = go_on(layer)
            # A rank may have finished a step in which another one has failed.
            step = min(int(other) for other in layer.comm.host_all_gather(b"%8d" % step))
            print(f"rank {rank}: {error}; {layer.comm.num_ranks} ranks go on with step {step} "
                  f"after {1e3 * (time.monotonic() - begin):.0f} ms")
            continue
        assert (out == x * (topk_idx + 1).sum(axis=1, keepdims=True)).all(), f"step {step} is wrong"
        step += 1
    print(f"rank {rank}: {STEPS} steps are right")


main()
