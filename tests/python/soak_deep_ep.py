# SPDX-License-Identifier: MIT
"""Random calls on one Buffer of deep_ep, right and wrong ones. Each right step is compared with an
oracle. In the end the process has no more memory, threads and descriptors than after warming up.

usage: PYTHONPATH=PACKAGE python soak_deep_ep.py [--operations N] [--seed N] [--masks]

All ranks do the same operations, from one seed: a dispatch or a combine of either mode, with the
calls around it, and now and then a change of masks or of Buffers. What a rank does alone is from a
seed of its own: wrong calls before the right one, and whether it calls a hook.
"""
import argparse
import itertools
import os
import random
import sys
import tempfile

import torch
import weft
from ranks import run
from weft.drop_in import folder

torch.set_num_threads(1)  # before ranks are forked
sys.path.insert(0, folder())
import deep_ep  # noqa: E402
from deep_ep.utils import math as deep_ep_math  # noqa: E402
from soak_normal import NUM_RANKS, NormalCaller  # noqa: E402
from soak_refusals import refuse_all, refuse_one  # noqa: E402

WARM_UP = 0.3  # of the operations: then all shapes have been met
TOO_MANY = (1 << 16) - 1  # tokens: rows that a limited rank has no room for
PROGRESS = 1000  # operations between lines


class Shape:
    """The arguments of a step."""

    def __init__(self, draw):
        self.max_tokens = draw.choice([1, 2, 3, 5, 8, 13])
        self.hidden = draw.choice([64, 128, 512])
        self.num_experts = draw.choice([2, 4, 7])
        self.num_topk = draw.randint(1, min(self.num_experts, 4))
        self.rows_are = draw.choice({64: ["bf16"], 128: ["bf16", "fp8"],
                                     512: ["bf16", "fp8", "ue8m0"]}[self.hidden])
        self.use_logfmt = draw.random() < 0.2

    def first_expert(self, rank):
        return self.num_experts * rank // NUM_RANKS


class Step:
    """A dispatch, whose rows each rank can compute."""

    def __init__(self, shape, seed, rank, reached):
        self.shape, self.rank = shape, rank
        self.batches = [self._batch(seed, source) for source in range(NUM_RANKS)]
        self.x, self.ids, self.weights = self.batches[rank]
        self.first, self.end = shape.first_expert(rank), shape.first_expert(rank + 1)
        self.reached = reached  # the ranks that are not masked
        self.answers = self.handle = None

    def _batch(self, seed, source):
        shape, generator = self.shape, torch.Generator().manual_seed(2 * seed + source)
        num_tokens = int(torch.randint(0, shape.max_tokens + 1, (1,), generator=generator))
        x = torch.randint(-8, 9, (num_tokens, shape.hidden), generator=generator).bfloat16()
        ids = torch.rand(num_tokens, shape.num_experts, generator=generator).topk(
            shape.num_topk).indices
        ids[torch.rand(ids.shape, generator=generator) < 0.1] = -1
        weights = torch.randint(1, 5, ids.shape, generator=generator) / 4
        return x, ids, weights

    def expected_rows(self, expert):
        rows = [x[t] for source, (x, ids, _) in enumerate(self.batches) if source in self.reached
                for t in range(len(x)) if expert in ids[t]]
        return torch.stack(rows) if rows else torch.empty(0, self.shape.hidden).bfloat16()

    def check_rows(self, got, counts):
        shape = self.shape
        values = got if shape.rows_are == "bf16" else torch.stack(
            [deep_ep_math.per_token_cast_back(got[0][e], got[1][e].contiguous())
             for e in range(self.end - self.first)])
        assert values.shape[1] == NUM_RANKS * shape.max_tokens
        for expert in range(self.first, self.end):
            wanted = self.expected_rows(expert)
            assert counts[expert - self.first] == len(wanted), "counts are wrong"
            came = values[expert - self.first, :len(wanted)]
            torch.testing.assert_close(came, wanted, atol=0,
                                       rtol=0 if shape.rows_are == "bf16" else 0.07)

    def fill_answers(self):
        """Lets the experts return the rows."""
        shape = self.shape
        self.answers = torch.zeros(self.end - self.first, NUM_RANKS * shape.max_tokens,
                                   shape.hidden, dtype=torch.bfloat16)
        for expert in range(self.first, self.end):
            wanted = self.expected_rows(expert)
            self.answers[expert - self.first, :len(wanted)] = wanted

    def check_sums(self, out):
        starts = [self.shape.first_expert(r) for r in range(NUM_RANKS + 1)]
        weights = torch.zeros_like(self.weights)
        for rank in self.reached:
            is_there = (self.ids >= starts[rank]) & (self.ids < starts[rank + 1])
            weights += self.weights * is_there
        wanted = (self.x.float() * weights.sum(1, keepdim=True))
        torch.testing.assert_close(out.float(), wanted, atol=0, rtol=1 / 128)


def wrong_dispatches(step):
    """Wrong arguments of a dispatch."""
    x, ids, local = step.x, step.ids, step.end - step.first
    yield {"x": x.float()}
    yield {"x": x[:, :, None]}
    yield {"topk_idx": ids.float()}
    yield {"topk_idx": ids[:, 0]}
    yield {"x": torch.zeros(step.shape.max_tokens + 1, step.shape.hidden).bfloat16(),
           "topk_idx": torch.zeros(step.shape.max_tokens + 1, step.shape.num_topk).long()}
    yield {"cumulative_local_expert_recv_stats": torch.zeros(local, dtype=torch.int64)}
    yield {"cumulative_local_expert_recv_stats": torch.zeros(local + 1, dtype=torch.int32)}
    yield {"dispatch_wait_recv_cost_stats": torch.zeros(NUM_RANKS, dtype=torch.int32)}
    yield {"dispatch_wait_recv_cost_stats": torch.zeros(2 * NUM_RANKS, dtype=torch.int64)[::2]}
    yield {"num_experts": 0}
    yield {"use_ue8m0": True, "round_scale": False}
    both = torch.zeros(2 * max(NUM_RANKS, local), dtype=torch.int32)
    yield {"cumulative_local_expert_recv_stats": both[:local],
           "dispatch_wait_recv_cost_stats": both.view(torch.int64)[:NUM_RANKS]}
    most = step.shape.max_tokens
    if step.shape.num_topk > 1:  # more choices of expert 0 than it has room for
        yield {"x": x.new_zeros(most, x.shape[1]), "topk_idx": ids.new_zeros(most, ids.shape[1])}


def wrong_combines(step):
    x, ids, weights = step.answers, step.ids, step.weights
    yield {"x": x.float()}
    yield {"x": x[:, 1:]}
    yield {"topk_weights": weights.bfloat16()}
    yield {"topk_weights": torch.zeros(len(ids) + 1, ids.shape[1])}
    yield {"out": torch.empty(len(ids) + 1, step.shape.hidden).bfloat16()}
    yield {"out": torch.empty(len(ids), step.shape.hidden)}
    yield {"combine_wait_recv_cost_stats": torch.zeros(NUM_RANKS)}
    yield {"handle": None}
    yield {"use_logfmt": True, "zero_copy": True}


class Caller:
    """One rank."""

    def __init__(self, group, has_masks, seed):
        self.rank, self.has_masks = group.rank(), has_masks
        self.buffer = deep_ep.Buffer(group, 0, 0, True, enable_shrink=has_masks)
        self.group, self.shared = group, random.Random(seed)
        self.alone = random.Random(seed + 1 + self.rank)
        self.reached, self.steps, self.seeds = list(range(NUM_RANKS)), [], itertools.count(seed)
        self.num_calls, self.later = 0, []  # later: hooks, and what to look at then
        self.normal = NormalCaller(group, self.buffer, self.shared, self.alone, seed)

    def call(self, function, wrong, **right):
        """Now and then makes a wrong call first, which must be refused."""
        self.num_calls += 1
        hooked = {"return_recv_hook": self.shared.random() < 0.5}
        if self.alone.random() < 0.3:
            self.num_calls += 1
            refuse_one(self.alone, function, right | hooked, wrong)
        *outputs, event, hook = function(**right | hooked)
        return outputs, hook

    def receive(self, hook, check):
        """Calls the hook at once, later or never."""
        drawn = self.alone.random()
        if not hook or drawn < 0.4:
            if hook:
                hook()
            check()
        elif drawn < 0.7:
            self.later.append((hook, check))

    def receive_later(self):
        while self.later and self.alone.random() < 0.5:
            hook, check = self.later.pop(self.alone.randrange(len(self.later)))
            hook()
            check()

    def dispatch(self):
        step = Step(Shape(self.shared), next(self.seeds), self.rank, list(self.reached))
        shape, stats = step.shape, torch.zeros(step.end - step.first, dtype=torch.int32)
        (got, counts, step.handle), hook = self.call(
            self.buffer.low_latency_dispatch, wrong_dispatches(step), x=step.x, topk_idx=step.ids,
            num_max_dispatch_tokens_per_rank=shape.max_tokens, num_experts=shape.num_experts,
            use_fp8=shape.rows_are != "bf16", round_scale=shape.rows_are == "ue8m0",
            use_ue8m0=shape.rows_are == "ue8m0", cumulative_local_expert_recv_stats=stats)
        step.fill_answers()

        def check():
            step.check_rows(got, counts)
            assert torch.equal(stats, counts)

        self.receive(hook, check)
        self.steps = self.steps[-2:] + [step]

    def combine(self):
        """Combines one of the last steps."""
        if not self.steps:
            return
        step = self.shared.choice(self.steps)
        (out,), hook = self.call(
            self.buffer.low_latency_combine, wrong_combines(step), x=step.answers,
            topk_idx=step.ids, topk_weights=step.weights, handle=step.handle,
            use_logfmt=step.shape.use_logfmt)
        self.receive(hook, lambda: step.check_sums(out))

    def lack_memory(self):
        """One rank has none, so no rank gets the room of a shape."""
        limited = self.shared.randrange(NUM_RANKS)
        step = Step(Shape(self.shared), next(self.seeds), self.rank, list(self.reached))
        right = {"x": step.x.repeat(1, 512 // step.shape.hidden), "topk_idx": step.ids,
                 "num_experts": step.shape.num_experts, "use_fp8": False}
        self.num_calls += 1
        refuse_all(self.buffer.low_latency_dispatch, right,
                   {"num_max_dispatch_tokens_per_rank": TOO_MANY}, weft.OutOfMemoryError,
                   is_limited=self.rank == limited)

    def change_masks(self):
        """Ranks mask each other, or come back."""
        self.num_calls += 1
        torch.distributed.barrier(self.group)
        if len(self.reached) == NUM_RANKS:
            self.reached = [self.rank]
            for other in range(NUM_RANKS):
                if other != self.rank:
                    self.buffer.low_latency_update_mask_buffer(other, True)
        else:
            self.reached = list(range(NUM_RANKS))
            self.buffer.low_latency_clean_mask_buffer()
        self.steps, self.later = [], []  # other ranks took part in the old ones
        status = torch.zeros(NUM_RANKS, dtype=torch.int32)
        self.buffer.low_latency_query_mask_buffer(status)
        assert [r for r in range(NUM_RANKS) if not status[r]] == self.reached
        torch.distributed.barrier(self.group)

    def go_on(self):
        drawn = self.shared.random()
        self.receive_later()
        if self.has_masks and drawn < 0.02:
            self.change_masks()
        elif drawn < 0.5 and len(self.reached) == NUM_RANKS:
            self.normal.go_on()
        elif drawn < 0.51:
            self.lack_memory()
        elif drawn < 0.77:
            self.dispatch()
        else:
            self.combine()

    def resources(self):
        with open("/proc/self/statm", encoding="ascii") as statm:
            resident_bytes = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {"calls": self.num_calls + self.normal.num_calls,
                "heap": self.buffer._comm.heap_info().committed_bytes,
                "threads": len(os.listdir("/proc/self/task")),
                "descriptors": len(os.listdir("/proc/self/fd")), "resident": resident_bytes}


def soak(num_operations, seed, has_masks):
    """Returns how many calls rank 0 has made, and what of resources it has, after the first
    operations and in the end."""
    with tempfile.TemporaryDirectory() as meeting:
        def be_rank(comm):
            os.environ["WEFT_MACHINE"] = "cpu"
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{meeting}/meet", rank=comm.rank,
                world_size=NUM_RANKS)
            caller, first = Caller(torch.distributed.group.WORLD, has_masks, seed), None
            number = 0
            try:
                for number in range(num_operations):
                    if number == int(WARM_UP * num_operations):
                        first = caller.resources()
                    caller.go_on()
                    if comm.rank == 0 and (number + 1) % PROGRESS == 0:
                        print(number + 1, "operations", caller.resources(), flush=True)
            except BaseException as error:
                raise RuntimeError(f"operation {number} of seed {seed}") from error
            result = first, caller.resources()
            comm.host_barrier()
            torch.distributed.destroy_process_group()
            return result

        return run(be_rank, NUM_RANKS, limit_s=max(120, num_operations))[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--masks", action="store_true")
    options = parser.parse_args()
    first, last = soak(options.operations, options.seed, options.masks)
    print("after the first operations:", first, "and in the end:", last)


if __name__ == "__main__":
    main()
