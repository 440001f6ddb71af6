# SPDX-License-Identifier: MIT
"""A layer of experts whose ranks may die. Each expert has copies on two ranks. After a death the
others go on: from the copies that are left they make two of each expert again. Meanwhile one of
them starts a new rank, and all take it in when it is there. The example handles one death at a
time: if one more rank dies before the job is whole again, the job may end with an error. Here a
rank kills itself in the middle of a step: --kill RANK STEP.

    PYTHONPATH=build/python build/weft run -n 4 --grace 60 -- python3 examples/go_on.py --kill 2 50
"""
import os
import select
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import weft

EXPERTS, HIDDEN, TOKENS, STEPS = 8, 64, 16, 300
MORE_STEPS = 100  # once a new rank is there, if there would be fewer


def two_copies(num_ranks):
    """The ranks of each expert."""
    return [sorted({expert % num_ranks, (expert + 1) % num_ranks}) for expert in range(EXPERTS)]


def checkpoint(expert):
    return np.full(HIDDEN, expert + 1, np.float32)


class Layer:
    """Expert e multiplies by its weights."""

    def __init__(self, comm, expert_ranks):
        self.comm, self.expert_ranks = comm, expert_ranks
        self.ep = weft.ExpertParallel(comm, EXPERTS, expert_ranks=expert_ranks)
        self.experts = self.ep.experts_of(comm.rank)
        self.handle = self.ep.handle(num_topk=2)
        self.arena = weft.Arena(comm, 1 << 20)
        self.weights = comm.heap_empty((EXPERTS, HIDDEN), np.float32)  # row i: local expert i

    def load(self, held):
        for row, expert in zip(self.weights, self.experts):
            row[:] = held[expert] if expert in held else checkpoint(expert)

    def forward(self, x, topk_idx):
        self.handle.layout(topk_idx)
        self.handle.notify()
        received = self.handle.dispatch(x, topk_idx=topk_idx, arena=self.arena)
        chosen = received.topk_idx[..., None]
        received.x[:] *= np.where(chosen >= 0, self.weights[chosen[..., 0]], 0).sum(axis=1)
        return self.handle.combine(received.x)


def carry_over(layer, comm, expert_ranks):
    """The layer on another communicator, with two copies of each expert. The weights that ranks
    have, `expert_ranks`, are copied into its heap. Experts without a copy come from the checkpoint.
    layer: None on a new rank."""
    left = Layer(comm, [ranks or [0] for ranks in expert_ranks])
    left.load(dict(zip(layer.experts, layer.weights)) if layer else {})
    whole = Layer(comm, two_copies(comm.num_ranks))
    left.ep.move_experts(whole.ep, [left.weights], [whole.weights])
    if layer:
        layer.comm.destroy()  # not before: its heap has the weights
    return whole


def shrink(layer):
    """The layer of the ranks that are left."""
    comm = layer.comm.shrink()
    numbers = {comm.parent_rank(rank): rank for rank in range(comm.num_ranks)}
    return carry_over(layer, comm, [[numbers[rank] for rank in ranks if rank in numbers]
                                    for ranks in layer.expert_ranks])


class NewRank:
    """A process that becomes a rank. It waits for its number, since ranks may die meanwhile."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, __file__, "--join"], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.greeting, self.is_invited = "", False

    def is_there(self):
        if not self.greeting and select.select([self.process.stdout], [], [], 0)[0]:
            self.greeting = self.process.stdout.readline()
            if not self.greeting:
                raise ChildProcessError(f"the new rank ended with status {self.process.wait()}")
        return bool(self.greeting)

    def invite(self, *words):
        self.is_invited = True
        print(self.greeting, end="")
        print(*words, file=self.process.stdin, flush=True)


def new_rank_is_there(comm, started):
    """Rank 0 starts one at a time, and tells all when it is there."""
    if comm.rank == 0 and (not started or started[-1].is_invited):
        started.append(NewRank())
    return b"1" in comm.host_all_gather(b"%d" % (comm.rank == 0 and started[-1].is_there()))


def grow(layer, started, num_wanted):
    """The layer of these ranks and of a new one. These keep their numbers."""
    members, unique_id = layer.comm.num_ranks, None
    if layer.comm.rank == 0:
        unique_id = layer.comm.unique_id()
        started[-1].invite(unique_id.hex(), members, num_wanted)
    return carry_over(layer, layer.comm.grow(members + 1, unique_id), layer.expert_ranks)


def join():
    """The same on the new rank; the number of ranks that the job wants; when it was invited."""
    print(f"process {os.getpid()} is there", flush=True)
    words = sys.stdin.readline().split()
    if not words:
        sys.exit()  # who started it has died
    members = int(words[1])
    begin = time.monotonic()
    comm = weft.Communicator(bytes.fromhex(words[0]), members, members + 1)
    return carry_over(None, comm, two_copies(members)), int(words[2]), begin


def agree(comm, step):
    """A rank may have finished a step in which another one has failed. A new one has done none."""
    return min(int(other) for other in comm.host_all_gather(b"%8d" % step))


def main():
    victim, last_step = map(int, sys.argv[2:]) if sys.argv[1:2] == ["--kill"] else (-1, -1)
    news, death, begin, step, end, started = "", 0, 0, 0, STEPS, []
    if sys.argv[1:2] == ["--join"]:
        layer, num_wanted, begin = join()
        step, news = agree(layer.comm, 10**8 - 1), "is invited"
        end, name = max(STEPS, step + MORE_STEPS), f"new rank {layer.comm.rank}"
    else:
        comm = weft.Communicator.from_env()
        num_wanted, name = comm.num_ranks, f"rank {comm.rank}"
        layer = Layer(comm, two_copies(num_wanted))
        layer.load({})
    draw = np.random.default_rng(layer.comm.rank)
    while True:
        if (name, step) == (f"rank {victim}", last_step):
            threading.Timer(draw.random() / 500, os.kill, (os.getpid(), signal.SIGKILL)).start()
        x = draw.integers(-9, 9, (TOKENS, HIDDEN)).astype(np.float32)
        topk_idx = np.argsort(draw.random((TOKENS, EXPERTS)), axis=1)[:, :2].astype(np.int32)
        try:
            # A step comes first: to start a process takes a while.
            if (layer.comm.num_ranks < num_wanted and not news and
                    new_rank_is_there(layer.comm, started)):
                begin = time.monotonic()
                layer = grow(layer, started, num_wanted)
                step = agree(layer.comm, step)
                end = max(STEPS, step + MORE_STEPS)
                news = f"{1e3 * (begin - death):.0f} ms after the death a new rank is there"
            if step >= end and layer.comm.num_ranks == num_wanted:
                layer.comm.host_barrier()  # nobody leaves whom another one may still need
                break
            out = layer.forward(x, topk_idx)
        except weft.RankFailedError as error:
            death = begin = time.monotonic()
            layer = shrink(layer)
            step = agree(layer.comm, step)
            news = str(error)
            continue
        assert (out == x * (topk_idx + 1).sum(axis=1, keepdims=True)).all(), f"step {step} is wrong"
        if news:
            print(f"{name}: {news}; {layer.comm.num_ranks} ranks have done step {step} "
                  f"{1e3 * (time.monotonic() - begin):.0f} ms later")
            news = ""
        step += 1
    print(f"{name}: all steps before {step} are right")
    for new_rank in started:
        print(new_rank.process.communicate()[0], end="")


main()
