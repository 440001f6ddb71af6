# SPDX-License-Identifier: MIT
"""Times of test programs, on GPUs."""
from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Callable, Iterator

import torch
import torch.distributed as dist

L2_FLUSH_BYTES = 256_000_000


def bench(fn: Callable[[], Any], num_warmups: int = 50, num_tests: int = 50,
          post_fn: Callable[[], Any] | None = None,
          flush_l2: bool = True) -> tuple[float, float, float]:
    """Mean, least and greatest seconds of a call, without the first one."""
    torch.cuda.synchronize()
    cache = torch.empty(L2_FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    for _ in range(num_warmups):
        fn()
    pairs = []
    for _ in range(num_tests):
        if flush_l2:
            cache.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        fn()
        end.record()
        pairs.append((start, end))
        if post_fn is not None:
            post_fn()
    torch.cuda.synchronize()
    seconds = [start.elapsed_time(end) / 1e3 for start, end in pairs][1:]
    return sum(seconds) / len(seconds), min(seconds), max(seconds)


@contextlib.contextmanager
def _silent(is_silent: bool) -> Iterator[None]:
    """CUPTI writes to the descriptors themselves."""
    if not is_silent:
        yield
        return
    saved = [os.dup(1), os.dup(2)]
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        sys.stdout.flush()
        for descriptor in (1, 2):
            os.dup2(nowhere.fileno(), descriptor)
        try:
            yield
        finally:
            for descriptor, copy in zip((1, 2), saved):
                os.dup2(copy, descriptor)
                os.close(copy)


def bench_kineto(fn: Callable[[], Any], kernel_names: Any, num_tests: int = 30,
                 suppress_kineto_output: bool = False, trace_path: str | None = None,
                 flush_l2: bool = False, barrier_comm_profiling: bool = False,
                 num_kernels_per_period: int = 1,
                 barrier: Callable[[], Any] | None = None) -> Any:
    """Mean seconds of the kernels whose names contain kernel_names, a string or a tuple. With
    several launches a period, a list of means, one for each."""
    names = (kernel_names,) if isinstance(kernel_names, str) else tuple(kernel_names)
    cache = torch.empty(L2_FLUSH_BYTES if flush_l2 else 0, dtype=torch.uint8, device="cuda")
    with _silent(suppress_kineto_output):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(num_tests):
                cache.zero_()
                if barrier is not None:
                    barrier()
                elif barrier_comm_profiling:  # all ranks begin at about the same time
                    dist.all_reduce(torch.ones(1, dtype=torch.float32, device="cuda"))
                fn()
            torch.cuda.synchronize()
    if trace_path is not None:
        profile.export_chrome_trace(trace_path)
    times = [_times_of(profile, name, num_kernels_per_period) for name in names]
    return times[0] if isinstance(kernel_names, str) else tuple(times)


def _times_of(profile: Any, name: str, num_per_period: int) -> Any:
    events = sorted((event for event in profile.events()
                     if name in event.name[:100] and event.device_time > 0),
                    key=lambda event: event.time_range.start)
    assert len({event.name for event in events}) <= 1, f"several kernels are called {name}"
    means = []
    for i in range(num_per_period):
        mine = [event.device_time for event in events[i::num_per_period]]
        means.append(sum(mine) / len(mine) / 1e6 if mine else 0)
    return means if num_per_period > 1 else means[0]
