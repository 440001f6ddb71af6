# SPDX-License-Identifier: MIT
"""What calls cost the host: microseconds of a step of deep_ep, how many of them in the library, and
the rest, which Python and PyTorch take. One process per rank; rank 0's figures, the best of several
rounds.

    PYTHONPATH=build/python:python/deep_ep python3 bench/python/host_cost.py [--gpus N] [--profile]

Without --gpus on CPUs, with one rank. There calls return when their operations have finished; these
are left out, so that the way to them remains. --profile: where the time of each step goes.
"""
import argparse
import cProfile
import os
import pstats
import tempfile
import time

import torch
import weft
from weft.library import lib

ROUNDS, STEPS = 15, 100
OPERATIONS = ["weft_ep_layout", "weft_ep_notify", "weft_ep_dispatch", "weft_ep_combine",
              "weft_ll_dispatch", "weft_ll_combine", "weft_ll_release", "weft_stream_synchronize"]
TOKENS, HIDDEN, EXPERTS_PER_RANK, TOPK = 1, 512, 8, 2
EXPERTS_OF_TEST, TOPK_OF_TEST = 288, 8
DEEP_EPS_TEST = "DeepEP's test"


now = time.thread_time  # which other processes do not disturb; with GPUs time that passes


class Clock:
    """Time spent in functions of the library within `with`; reading the clock takes some, too."""

    def __init__(self):
        self.total_s = 0.0

    def __enter__(self):
        functions = {name: getattr(lib, name) for name in weft.abi.FUNCTIONS}
        self._functions = {name: f for name, f in functions.items() if f is not nothing}
        for name, function in self._functions.items():
            setattr(lib, name, self._timed(function))

    def __exit__(self, *unused):
        for name, function in self._functions.items():
            setattr(lib, name, function)

    def _timed(self, function):
        def call(*arguments):
            start = now()
            result = function(*arguments)
            self.total_s += now() - start
            return result

        return call


def step_of_test(buffer, device, num_ranks):
    """What DeepEP's test_low_latency.py times without a graph, with a default device, as it has."""
    x = torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device)
    ids = torch.arange(TOPK_OF_TEST, device=device).repeat(TOKENS, 1)
    weights = torch.ones(TOKENS, TOPK_OF_TEST, device=device)
    num_local, num_rows = EXPERTS_OF_TEST // num_ranks, TOKENS * num_ranks
    counts = torch.zeros(num_local, dtype=torch.int32, device=device)
    answers = torch.ones(num_local, num_rows, HIDDEN, dtype=torch.bfloat16, device=device)

    def step():
        _, _, handle, _, _ = buffer.low_latency_dispatch(
            x, ids, TOKENS, EXPERTS_OF_TEST, cumulative_local_expert_recv_stats=counts,
            use_fp8=True, async_finish=False, return_recv_hook=False)
        buffer.low_latency_combine(answers, ids, weights, handle, use_logfmt=False,
                                   return_recv_hook=False)

    return step


def steps_of(buffer, device, num_ranks):
    num_experts = EXPERTS_PER_RANK * num_ranks
    x = torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16, device=device)
    ids = torch.arange(TOPK, device=device).repeat(TOKENS, 1) * EXPERTS_PER_RANK % num_experts + 1
    ids[:, 1] += 1
    weights = torch.ones(TOKENS, TOPK, device=device)
    per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, num_experts)
    layout = {"num_tokens_per_rank": per_rank, "num_tokens_per_expert": per_expert,
              "is_token_in_rank": in_rank}
    answers = buffer.low_latency_dispatch(x, ids, TOKENS, num_experts, use_fp8=False)[0]
    kept = buffer.dispatch(x, topk_idx=ids, topk_weights=weights, **layout)[4]

    def low_latency(*, use_fp8=False, return_recv_hook=False):
        _, _, handle, _, hook = buffer.low_latency_dispatch(
            x, ids, TOKENS, num_experts, use_fp8=use_fp8, return_recv_hook=return_recv_hook)
        if hook:
            hook()
        _, _, hook = buffer.low_latency_combine(answers, ids, weights, handle,
                                                return_recv_hook=return_recv_hook)
        if hook:
            hook()

    def layer():
        got, _, got_weights, _, handle, _ = buffer.dispatch(
            x, topk_idx=ids, topk_weights=weights, **layout)
        buffer.combine(got, handle, topk_weights=got_weights)

    def cached():
        got = buffer.dispatch(x, handle=kept)[0]
        buffer.combine(got, kept)

    return {"low latency": low_latency, "low latency, fp8": lambda: low_latency(use_fp8=True),
            "low latency, hooks": lambda: low_latency(return_recv_hook=True),
            DEEP_EPS_TEST: step_of_test(buffer, device, num_ranks),
            "layout": lambda: buffer.get_dispatch_layout(ids, num_experts),
            "dispatch, combine": layer, "the same, cached": cached}


def nothing(*arguments):
    """In place of a function that is left out."""
    return 0


def leave_out_operations():
    for name in OPERATIONS:
        setattr(lib, name, nothing)


def best_of_rounds(step, finish, clock_s):
    """Microseconds of a step, by a clock."""
    rounds = []
    for _ in range(ROUNDS):
        finish()
        start = clock_s()
        for _ in range(STEPS):
            step()
        rounds.append(clock_s() - start)
    finish()
    return 1e6 * min(rounds) / STEPS


def measure(step, finish):
    """Microseconds of a step, and those of them in the library."""
    total_us = best_of_rounds(step, finish, now)
    clock = Clock()
    with clock:
        return total_us, best_of_rounds(step, finish, lambda: clock.total_s)


def profile(step, finish):
    profiler = cProfile.Profile()
    profiler.runcall(lambda: [step() for _ in range(STEPS)])
    finish()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def be_rank(rank, num_ranks, folder, options):
    global now
    device, finish = "cpu", lambda: None
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "WEFT_MACHINE": "cuda" if options.gpus else "cpu"}
    torch.set_num_threads(1)
    if options.gpus:
        now = time.perf_counter
        device, finish = f"cuda:{rank % torch.cuda.device_count()}", torch.cuda.synchronize
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                                         world_size=num_ranks)
    import deep_ep

    buffer = deep_ep.Buffer(torch.distributed.group.WORLD, low_latency_mode=True,
                            explicitly_destroy=True)
    steps = steps_of(buffer, device, num_ranks)
    for step in steps.values():
        step()
    for name, step in steps.items():
        if not options.gpus:
            leave_out_operations()
        torch.set_default_device(device if name == DEEP_EPS_TEST else None)
        total_us, library_us = measure(step, finish)
        if rank == 0:
            print(f"{name:20} {total_us:7.1f} us, in the library {library_us:6.1f}, "
                  f"else {total_us - library_us:6.1f}", flush=True)
        if options.profile and rank == 0:
            profile(step, finish)
        elif options.profile:
            for _ in range(STEPS):
                step()
    if options.gpus:
        buffer.destroy()
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    num_ranks = options.gpus or 1
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(be_rank, (num_ranks, folder, options), num_ranks)


if __name__ == "__main__":
    main()
