# SPDX-License-Identifier: MIT
"""Checks of gpu_smoke.py: outputs of deep_ep without a copy."""
import contextlib
import gc

import torch

EXPERTS_PER_RANK, TOPK = 4, 4


def num_ranks_of(ids, num_ranks):
    """Of how many ranks a token needs experts, [N, 1]."""
    return sum((ids // EXPERTS_PER_RANK == rank).any(1, keepdim=True).int()
               for rank in range(num_ranks))


def same(got, expected):
    assert got.device == expected.device, f"on {got.device}, not {expected.device}"
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def batch(rank, num_ranks, device):
    """On GPUs rows of 14 KiB, 100 MB of them, so that few batches fill a pool."""
    num_tokens, hidden = (64, 512) if device == "cpu" else (4096, 7168)
    x = torch.arange(num_tokens, device=device).add(rank).fmod(200)[:, None]
    choices = torch.arange(TOPK, device=device)  # of as many ranks as there are
    ids = (choices * EXPERTS_PER_RANK + choices // num_ranks +
           torch.arange(num_tokens, device=device)[:, None]) % (EXPERTS_PER_RANK * num_ranks)
    return x.expand(-1, hidden).to(torch.bfloat16).contiguous(), ids, torch.ones(
        num_tokens, TOPK, device=device)


class Layers:
    """Calls of a buffer with one batch, and what they must return."""

    def __init__(self, group, rank, num_ranks, device):
        import deep_ep

        self.buffer = deep_ep.Buffer(group, explicitly_destroy=True)
        self.num_ranks, self.is_on_gpu = num_ranks, device != "cpu"
        self.x, self.ids, self.weights = batch(rank, num_ranks, device)
        per_rank, _, per_expert, in_rank, _ = self.buffer.get_dispatch_layout(
            self.ids, EXPERTS_PER_RANK * num_ranks)
        self.layout = {"num_tokens_per_rank": per_rank, "is_token_in_rank": in_rank,
                       "num_tokens_per_expert": per_expert}
        self.rows = torch.cat([x[(ids // EXPERTS_PER_RANK == rank).any(1)] for x, ids, _ in (
            batch(source, num_ranks, device) for source in range(num_ranks))])
        self.sums = self.x * num_ranks_of(self.ids, num_ranks)

    def dispatch(self, **options):
        got, _, weights, _, handle, _ = self.buffer.dispatch(
            self.x, topk_idx=self.ids, topk_weights=self.weights, **self.layout, **options)
        return got, weights, handle

    def is_direct(self, tensor):
        return self.buffer._comm.is_direct(tensor)


def outputs_in_heap(layers):
    """Outputs are tensors of PyTorch's allocator in the heap; so are answers that experts write to
    buffer.pool."""
    got, weights, handle = layers.dispatch()
    assert layers.is_direct(got) and layers.is_direct(weights)
    same(got, layers.rows)
    pool = layers.buffer.pool
    with torch.cuda.use_mem_pool(pool) if pool else contextlib.nullcontext():
        answers = got * 2
    assert layers.is_direct(answers) == layers.is_on_gpu
    same(layers.buffer.combine(answers, handle)[0], layers.sums * 2)
    same(layers.buffer.combine(layers.rows.clone(), handle)[0], layers.sums)  # ordinary memory


def recorded_streams(layers):
    """Memory that a slow stream still reads is not given to the next dispatch."""
    if not layers.is_on_gpu:
        return
    slow = torch.cuda.Stream()
    got, _, handle = layers.dispatch()
    copy = torch.empty_like(got)
    layers.x.neg_().neg_()  # a kernel that is loaded waits for those that run
    slow.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(slow):
        torch.cuda._sleep(1_000_000_000)
        copy.copy_(got)
    got.record_stream(slow)
    place = got.data_ptr()
    del got
    layers.x.neg_()
    others = [layers.buffer.dispatch(layers.x, handle=handle)[0] for _ in range(3)]
    assert not slow.query(), "it is still to be asleep"
    assert place not in [other.data_ptr() for other in others]
    layers.x.neg_()
    slow.synchronize()
    same(copy, layers.rows)


def dropped_batches(layers):
    """The pool finds the memory of batches that were dropped, though nobody allocates anything
    else."""
    _, _, handle = layers.dispatch()
    for _ in range(16):
        got = layers.buffer.dispatch(layers.x, handle=handle)[0]
        if layers.is_on_gpu:
            torch.cuda.synchronize()
        assert layers.is_direct(got)
        del got


def full_pool(layers):
    """Batches that find no room lie elsewhere, and are right all the same."""
    kept, is_direct = [], []
    for _ in range(16 if layers.is_on_gpu else 400):
        got, weights, handle = layers.dispatch()
        kept.append(got)
        is_direct.append(layers.is_direct(got))
        same(layers.buffer.combine(got, handle, topk_weights=weights)[0], layers.sums)
    assert any(is_direct) and not all(is_direct), is_direct
    for got in kept:
        same(got, layers.rows)
    del kept, got
    assert any([layers.is_direct(layers.dispatch()[0]) for _ in range(70)])  # there is room again


def only_kernels_of_weft(layers):
    """Dispatch and combine copy no rows and launch nothing else: the host reads counts alone."""
    if not layers.is_on_gpu:
        return
    from torch.autograd import DeviceType

    for _ in range(2):
        got, weights, handle = layers.dispatch()
        layers.buffer.combine(got, handle, topk_weights=weights)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        got, weights, handle = layers.dispatch()
        layers.buffer.combine(got, handle, topk_weights=weights)
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type == DeviceType.CUDA]
    kernels = [name for name in names if not name.startswith(("Memset", "Memcpy DtoH"))]
    assert len(kernels) >= 3 and all("weft" in name for name in kernels), names


def deep_ep_graph(layers):
    """A layer with num_worst_tokens, captured: replays read what inputs are then."""
    if not layers.is_on_gpu:
        return
    worst = {"num_worst_tokens": 4096 * layers.num_ranks}

    def layer():
        got, weights, handle = layers.dispatch(**worst)
        return got, layers.buffer.combine(got, handle, topk_weights=weights)[0]

    for _ in range(2):
        layer()
    torch.cuda.synchronize()
    layers.buffer._comm.host_barrier()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        got, out = layer()
    for _ in range(2):
        layer()  # between replays
        layers.x.neg_()
        recorded.replay()
        torch.cuda.synchronize()
        same(out, layers.sums * (layers.x[5, 0] / layers.sums[5, 0]).sign())
        same(got[:len(layers.rows)].abs(), layers.rows)


def low_latency_graph(layers):
    if not layers.is_on_gpu:
        return
    buffer, num_experts = layers.buffer, EXPERTS_PER_RANK * layers.num_ranks
    x, ids, weights = layers.x[:16].clone(), layers.ids[:16], layers.weights[:16] / TOPK

    def step():
        rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, 16, num_experts, use_fp8=False)
        return buffer.low_latency_combine(rows, ids, weights, handle)[0]

    same(step(), x)
    buffer._comm.host_barrier()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        out = step()
    for _ in range(3):
        x.neg_()
        recorded.replay()
        same(out, x)
        same(step(), x)


def ends_in_any_order(layers):
    """Tensors and handles outlive their buffer, and their memory."""
    got, _, handle = layers.dispatch()
    layers.buffer.destroy()
    layers.buffer = None
    same(got, layers.rows)
    del handle
    gc.collect()
    copy = got.clone()
    del got
    gc.collect()
    if layers.is_on_gpu:
        torch.cuda.empty_cache()
    same(copy, layers.rows)


CHECKS = (outputs_in_heap, only_kernels_of_weft, recorded_streams, dropped_batches, full_pool,
          deep_ep_graph, low_latency_graph, ends_in_any_order)
