# SPDX-License-Identifier: MIT
"""What deep_ep and the custom all-reduce take on GPUs, beside the calls of the library that they
make: those of one step are recorded, and replayed with nothing between them. One process per GPU;
the slowest rank's times, and what else a step runs on the GPU.

    PYTHONPATH=build/python:python/deep_ep python3 bench/python/gpu_overhead.py --gpus N
"""
import argparse
import ctypes
import os
import statistics
import tempfile
from functools import partial

import torch
import weft
from torch.profiler import ProfilerActivity, profile
from weft import custom_all_reduce as ops
from weft.library import lib

HIDDEN, TOPK, EXPERTS = 7168, 8, 256
TOKENS, DECODE_TOKENS, REDUCED_BYTES = 4096, (8, 128), 64 << 10
CALLS, ROUNDS = 20, 15
OPERATIONS = ["weft_ep_layout", "weft_ep_notify", "weft_ep_wait_counts", "weft_ep_dispatch",
              "weft_ep_combine", "weft_ll_dispatch", "weft_ll_combine", "weft_coll_all_reduce"]


class Recorder:
    """The library's operations as they are called, with copies of what they are given."""

    def __init__(self):
        self.calls, self.kept = None, []  # None: it does not record
        for name in OPERATIONS:
            setattr(lib, name, self._recording(getattr(lib, name)))

    def _recording(self, function):
        def call(*arguments):
            if self.calls is not None:
                self.calls.append((function, [_copy_of(a, self.kept) for a in arguments]))
            return function(*arguments)

        return call

    def record(self, step):
        """What makes the calls of a step once more, with the memory of its results."""
        self.calls = []
        results = step()
        calls, self.calls = self.calls, None
        if not torch.cuda.is_current_stream_capturing():
            torch.cuda.synchronize()

        def replay(kept=results):
            for function, arguments in calls:
                weft.library.check(function(*arguments))

        return replay

    def record_in_graph(self, step):
        """The same of calls that are captured, which all captures of PyTorch do on one stream."""
        self.graph = torch.cuda.CUDAGraph()  # has the memory
        with torch.cuda.graph(self.graph):
            return self.record(step)


def _copy_of(argument, kept):
    """With a copy of the planes that it lists, which live until the call returns; kept has it."""
    structure = getattr(argument, "_obj", None)  # of ctypes.byref
    if structure is None:
        return argument
    copy = type(structure).from_buffer_copy(structure)
    if getattr(structure, "planes", None):
        kind = weft.abi.Plane * structure.num_planes
        kept.append(kind.from_buffer_copy(kind.from_address(structure.planes)))
        copy.planes = ctypes.addressof(kept[-1])
    return ctypes.byref(copy)


# ---------------------------------------------------------------- times


def in_stream(step):
    """Microseconds of a step, one after the other."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(CALLS):
        step()
    end.record()
    end.synchronize()
    return 1000 * begin.elapsed_time(end) / CALLS


def in_graph(step):
    """The same in a graph; returns what times it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            step()

    def replay():
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return 1000 * begin.elapsed_time(end) / CALLS

    return replay


def compare(name, rank, in_python, in_library):
    """In turns, so that both meet the same machine."""
    times = {in_python: [], in_library: []}
    for _ in range(ROUNDS):
        for measure, taken in times.items():
            torch.distributed.barrier()
            taken.append(measure())
    ours, library = (_slowest(statistics.median(times[which])) for which in (in_python, in_library))
    if rank == 0:
        print(f"{name:44} {ours:8.1f} us, by the library's calls {library:8.1f}: "
              f"{100 * (ours / library - 1):5.1f} %, {ours - library:6.1f} us more", flush=True)


def _slowest(us):
    times = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(times, us)
    return max(times)


def show_copies(name, rank, step):
    """Kernels and copies that are not the library's."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiled:
        step()
        torch.cuda.synchronize()
    others = [f"{event.key[:60]} {event.device_time_total:.1f} us"
              for event in profiled.key_averages()
              if event.device_time_total > 0 and "weft" not in event.key]
    if rank == 0:
        print(f"{name:44} runs beside the library's kernels: {'; '.join(others) or 'nothing'}",
              flush=True)


# ---------------------------------------------------------------- steps


def batch(rank, num_tokens):
    generator = torch.Generator(device="cuda").manual_seed(rank)
    x = torch.randn(num_tokens, HIDDEN, generator=generator, device="cuda").bfloat16()
    ids = torch.rand(num_tokens, EXPERTS, generator=generator, device="cuda").topk(TOPK).indices
    weights = torch.rand(num_tokens, TOPK, generator=generator, device="cuda")
    return x, ids, weights


def measure_layer(buffer, rank, recorder):
    x, ids, weights = batch(rank, TOKENS)
    per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
    layout = {"num_tokens_per_rank": per_rank, "num_tokens_per_expert": per_expert,
              "is_token_in_rank": in_rank}

    def layer():
        got = buffer.dispatch(x, topk_idx=ids, topk_weights=weights, **layout)
        return got, buffer.combine(got[0], got[4])

    kept = layer()[0][4]

    def cached():
        got = buffer.dispatch(x, handle=kept)
        return got, buffer.combine(got[0], kept)

    for name, step in ("dispatch and combine, 4096 tokens", layer), ("the same, cached", cached):
        for _ in range(5):
            step()
        replay = recorder.record(step)
        compare(name, rank, partial(in_stream, step), partial(in_stream, replay))
        show_copies(name, rank, step)


def measure_decode(buffer, rank, recorder, num_tokens):
    x, ids, weights = batch(rank, num_tokens)
    answers = buffer.low_latency_dispatch(x, ids, num_tokens, EXPERTS, use_fp8=False)[0].clone()

    def step():
        rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, num_tokens, EXPERTS)
        return rows, buffer.low_latency_combine(answers, ids, weights, handle)

    for _ in range(3):
        step()
    replay = recorder.record(step)
    name = f"decode step, {num_tokens} tokens"
    compare(name + ", no graph", rank, partial(in_stream, step), partial(in_stream, replay))
    compare(name + ", in a graph", rank, in_graph(step), in_graph(recorder.record_in_graph(step)))
    show_copies(name, rank, step)


def measure_all_reduce(rank, num_ranks, recorder):
    meta, data = _shared(ops.meta_size(), rank, num_ranks), _shared(8 << 20, rank, num_ranks)
    places = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
    custom = ops.init_custom_ar(meta, places, rank, True)
    ops.register_buffer(custom, data)
    x = torch.ones(REDUCED_BYTES // 2, dtype=torch.bfloat16, device="cuda")
    out = torch.empty_like(x)

    def step():
        ops.all_reduce(custom, x, out, data[rank], 8 << 20)
        return x, out

    step()
    replay = recorder.record_in_graph(step)
    compare("all-reduce of 64 KiB in a graph", rank, in_graph(step), in_graph(replay))


def _shared(num_bytes, rank, num_ranks):
    """Addresses of a block of each rank, here."""
    pointer, handle = ops.allocate_shared_buffer_and_handle(num_bytes)
    handles = [None] * num_ranks
    torch.distributed.all_gather_object(handles, handle)
    return [pointer if r == rank else ops.open_mem_handle(handles[r]) for r in range(num_ranks)]


def be_rank(rank, num_ranks, folder):
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "WEFT_MACHINE": "cuda"}
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                                         world_size=num_ranks)
    import deep_ep

    recorder = Recorder()
    buffer = deep_ep.Buffer(torch.distributed.group.WORLD, int(2e9), low_latency_mode=True,
                            explicitly_destroy=True)
    measure_layer(buffer, rank, recorder)
    for num_tokens in DECODE_TOKENS:
        measure_decode(buffer, rank, recorder, num_tokens)
    buffer.destroy()
    measure_all_reduce(rank, num_ranks, recorder)
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=torch.cuda.device_count())
    num_ranks = parser.parse_args().gpus
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(be_rank, (num_ranks, folder), num_ranks)


if __name__ == "__main__":
    main()
