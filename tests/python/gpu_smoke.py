# SPDX-License-Identifier: MIT
"""The packages on the GPUs of this machine: one process per visible GPU (--gpus 2 on a machine with
one: two that share it), one line per check.

    cmake --build build      # or make; build/python has the package
    PYTHONPATH=build/python:python/deep_ep python3 tests/python/gpu_smoke.py

once more with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, whose memory CUDA IPC does not
share; and FlashInfer's own test of custom all-reduce, in a folder that has nothing but this file:

    F=$(python3 -m weft.drop_in custom_all_reduce)
    PYTHONPATH=$F:$F/stand_ins:$PYTHONPATH python3 -m pytest test_vllm_custom_allreduce.py

It needs numpy and PyTorch, nothing installed, and no network: ranks meet on localhost. It ends
within a minute, since processes that hang are ended, after they have said where. `gpu_smoke.py
--cpu 3` runs the same checks on CPUs. Exit status: 0 all is well, 1 a check failed, 77 no GPU.
"""
import argparse
import contextlib
import faulthandler
import os
import sys
import tempfile
import time
import traceback

import gpu_pool
import torch
import weft
import weft.torch
from gpu_pool import EXPERTS_PER_RANK, TOPK, num_ranks_of, same
from weft import custom_all_reduce as ops

LIMIT_S = 55
TOKENS, HIDDEN = 64, 1024
DEVICE = "cpu"  # of this process


def batch(rank, num_experts):
    """Rows of small integers, whose sums are exact; distinct ids; weights."""
    generator = torch.Generator().manual_seed(rank)
    num_tokens = TOKENS - 3 * rank
    x = torch.randint(-8, 8, (num_tokens, HIDDEN), generator=generator).to(torch.bfloat16)
    ids = torch.rand(num_tokens, num_experts, generator=generator).topk(TOPK).indices
    weights = torch.randint(1, 5, (num_tokens, TOPK), generator=generator) / 4
    return x.to(DEVICE), ids.to(DEVICE), weights.to(DEVICE)


def everybody(comm_size):
    return [batch(rank, EXPERTS_PER_RANK * comm_size) for rank in range(comm_size)]


def rows_for(rank, batches):
    """What rank gets, in (source, token) order."""
    return torch.cat([x[(ids // EXPERTS_PER_RANK == rank).any(1)] for x, ids, _ in batches])


# ---------------------------------------------------------------- weft


def memory(comm):
    block = comm.heap_empty((3, 5), torch.float32)
    block.fill_(comm.rank)
    _finish()
    comm.host_barrier()
    peer = comm.on_rank(block, (comm.rank + 1) % comm.num_ranks)
    if peer is not None:
        same(peer.sum().cpu(), torch.tensor(15. * ((comm.rank + 1) % comm.num_ranks)))
    comm.host_barrier()
    comm.heap_free(block)


def collectives(comm):
    coll = weft.Collectives(comm)
    for count in (1000, 1 << 20):
        x = torch.arange(count, device=DEVICE) % 7 + comm.rank
        others = comm.num_ranks * (comm.num_ranks - 1) // 2
        same(coll.all_reduce(x.float()),
             (comm.num_ranks * (torch.arange(count, device=DEVICE) % 7) + others).float())
    same(coll.all_gather(torch.full((2, 3), comm.rank, device=DEVICE))[-1],
         torch.full((2, 3), comm.num_ranks - 1, device=DEVICE))


def expert_parallel(comm):
    """Results are used by PyTorch at once, on its current stream, also if that is a side stream."""
    batches = everybody(comm.num_ranks)
    x, ids, weights = batches[comm.rank]
    dispatcher = weft.torch.TokenDispatcher(comm, EXPERTS_PER_RANK * comm.num_ranks, TOPK, 1 << 24)
    for stream in (None, "side"):
        with _on_stream(stream):
            given = x.clone().requires_grad_()
            got = dispatcher.dispatch(given, ids, weights)
            same(got.rows.detach(), rows_for(comm.rank, batches))
            out = dispatcher.combine(got.rows * 2, got.routing)
            same(out.detach(), x * 2 * num_ranks_of(ids, comm.num_ranks))
            out.sum().backward()
            same(given.grad, (2 * num_ranks_of(ids, comm.num_ranks)).expand_as(x).to(x.dtype))
            _finish()


def low_latency(comm):
    num_experts = EXPERTS_PER_RANK * comm.num_ranks
    x, ids, weights = batch(comm.rank, num_experts)
    ll = weft.LowLatency(weft.ExpertParallel(comm, num_experts), HIDDEN, TOKENS, TOPK,
                         torch.bfloat16, answer=weft.LlAnswer.ROWS)
    expected = (x * weights.sum(1, keepdim=True)).bfloat16()
    for _ in range(3):
        got = ll.dispatch(x, ids)
        same(got.num_rows_per_expert, _rows_per_expert(comm.rank, comm.num_ranks))
        same(ll.combine(got.rows, topk_weights=weights), expected)
    ll.dispatch(x, ids, phases=weft.LlPhases.SEND)
    got = ll.dispatch(phases=weft.LlPhases.RECEIVE)
    same(ll.combine(got.rows, topk_weights=weights), expected)


def _rows_per_expert(rank, num_ranks):
    ids = torch.cat([ids.flatten() for _, ids, _ in everybody(num_ranks)])
    first = EXPERTS_PER_RANK * rank
    return torch.stack([(ids == first + i).sum() for i in range(EXPERTS_PER_RANK)]).int()


def graph(comm):
    """An all-reduce and a low-latency step, captured by PyTorch and replayed."""
    if DEVICE == "cpu":
        return
    num_experts = EXPERTS_PER_RANK * comm.num_ranks
    x, ids, weights = batch(comm.rank, num_experts)
    ll = weft.LowLatency(weft.ExpertParallel(comm, num_experts), HIDDEN, TOKENS, TOPK,
                         torch.bfloat16, answer=weft.LlAnswer.ROWS)
    coll = weft.Collectives(comm)
    ones = torch.ones(4096, device=DEVICE)

    def step():
        return ll.combine(ll.dispatch(x, ids).rows, topk_weights=weights), coll.all_reduce(ones)

    step()  # so that nothing is made in the capture
    _finish()
    comm.host_barrier()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        out, total = step()
    for i in range(3):
        ones.fill_(i)
        recorded.replay()
        same(out, (x * weights.sum(1, keepdim=True)).bfloat16())
        same(total, torch.full_like(total, i * comm.num_ranks))


# ---------------------------------------------------------------- vLLM's custom all-reduce


def custom_group(comm, num_bytes):
    """fa, and the ranks' blocks as they are mapped here."""
    address, handle = ops.allocate_shared_buffer_and_handle(num_bytes)
    handles = comm.host_all_gather(bytes(handle.tolist()))
    blocks = [address if r == comm.rank else ops.open_mem_handle(torch.tensor(list(h)))
              for r, h in enumerate(handles)]
    return ops.init_custom_ar(blocks, torch.empty(8, device=DEVICE), comm.rank, True), blocks


def addends(comm, count, dtype, seed=0):
    """Of every rank."""
    return [torch.randn(count, generator=torch.Generator().manual_seed(100 * seed + r)).to(dtype)
            for r in range(comm.num_ranks)]


def total_of(given):
    """In fp32, in rank order, rounded once."""
    total = given[0].float()
    for x in given[1:]:
        total = total + x.float()
    return total.to(given[0].dtype).to(DEVICE)


def custom_eager(comm):
    """Memory that peers write to; sums below and above 8 MiB, on a side stream too; parts."""
    fa, blocks = custom_group(comm, ops.meta_size() + 4096)
    memory = weft.shared_memory.memory()
    assert memory.read(blocks[comm.rank], 4096) == bytes(4096)
    comm.host_barrier()
    for r, block in enumerate(blocks):
        memory.write(block + 8 * comm.rank, bytes([r + 1] * 8))
    comm.host_barrier()
    assert memory.read(blocks[comm.rank], 8 * comm.num_ranks) == \
        bytes([comm.rank + 1] * 8 * comm.num_ranks)
    for stream in (None, "side"):
        with _on_stream(stream):
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                for count in (8, 4099, 5 << 20):
                    given = addends(comm, count, dtype)
                    x = given[comm.rank].to(DEVICE)
                    out = torch.empty_like(x)
                    ops.all_reduce(fa, x, out, blocks[comm.rank], 4096)
                    same(out, total_of(given))
            _finish()
    x = torch.arange(6, device=DEVICE).float() + comm.rank
    out = torch.empty(6 * comm.num_ranks, device=DEVICE)
    ops.custom_all_gather(fa, x, out, 0, 0)
    same(out.view(-1, 6) - x, torch.arange(-comm.rank, comm.num_ranks - comm.rank,
                                           device=DEVICE).float()[:, None].expand(-1, 6))
    ops.custom_reduce_scatter(fa, out, x, 0, 0)
    same(x, (torch.arange(6, device=DEVICE) + comm.rank).float() * comm.num_ranks)
    _finish()
    comm.host_barrier()
    ops.dispose(fa)
    for r, block in enumerate(blocks):
        if r != comm.rank:
            ops.free_shared_buffer(block)
    comm.host_barrier()
    ops.free_shared_buffer(blocks[comm.rank])


def custom_graphs(comm):
    """Two captures one after the other, each registered; then one with a buffer, which is not."""
    if DEVICE == "cpu":
        return
    fa, blocks = custom_group(comm, ops.meta_size())
    captures = []
    for buffer, num_calls in ((0, 2), (0, 1), (blocks[comm.rank], 2)):
        inputs = [torch.zeros(count, device=DEVICE, dtype=torch.bfloat16)
                  for count in (4096, 6 << 20)[:num_calls]]
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            outputs = [torch.empty_like(x) for x in inputs]
            for x, out in zip(inputs, outputs):
                ops.all_reduce(fa, x, out, buffer, 1 << 30)
        handles, offsets = ops.get_graph_buffer_ipc_meta(fa)
        expected = 0 if buffer else num_calls
        assert (len(handles), len(offsets)) == (64 * expected, expected)
        ops.register_graph_buffers(fa, [handles] * comm.num_ranks, [offsets] * comm.num_ranks)
        captures.append((recorded, inputs, outputs))
    for seed in range(3):
        for recorded, inputs, outputs in captures:
            given = [addends(comm, x.numel(), x.dtype, seed) for x in inputs]
            for x, of_all in zip(inputs, given):
                x.copy_(of_all[comm.rank])
            recorded.replay()
            for out, of_all in zip(outputs, given):
                same(out, total_of(of_all))
    _finish()
    comm.host_barrier()
    ops.dispose(fa)


# ---------------------------------------------------------------- deep_ep


def deep_ep_normal(buffer, rank, num_ranks):
    batches = everybody(num_ranks)
    x, ids, weights = batches[rank]
    per_rank, per_node, per_expert, in_rank, _ = buffer.get_dispatch_layout(
        ids, EXPERTS_PER_RANK * num_ranks)
    layout = {"num_tokens_per_rank": per_rank, "num_tokens_per_rdma_rank": per_node,
              "is_token_in_rank": in_rank, "num_tokens_per_expert": per_expert}
    for is_async in (False, True):
        got, _, got_weights, counts, handle, event = buffer.dispatch(
            x, topk_idx=ids, topk_weights=weights, async_finish=is_async, **layout)
        if is_async:
            event.current_stream_wait()
        same(got, rows_for(rank, batches))
        assert counts == _rows_per_expert(rank, num_ranks).tolist(), counts
        out, out_weights, event = buffer.combine(got, handle, topk_weights=got_weights,
                                                 async_finish=is_async)
        if is_async:
            event.current_stream_wait()
        same(out, x * num_ranks_of(ids, num_ranks))
        same(out_weights, weights)


def deep_ep_low_latency(buffer, rank, num_ranks):
    x, ids, weights = batch(rank, EXPERTS_PER_RANK * num_ranks)
    expected = (x * weights.sum(1, keepdim=True)).bfloat16()
    for with_hook in (False, True):
        got, counts, handle, _, hook = buffer.low_latency_dispatch(
            x, ids, TOKENS, EXPERTS_PER_RANK * num_ranks, use_fp8=False,
            return_recv_hook=with_hook)
        if with_hook:
            hook()
        same(counts, _rows_per_expert(rank, num_ranks))
        out, _, hook = buffer.low_latency_combine(got, ids, weights, handle,
                                                  return_recv_hook=with_hook)
        if with_hook:
            hook()
        same(out, expected)


# ---------------------------------------------------------------- ranks


def _on_stream(name):
    if name is None or DEVICE == "cpu":
        return contextlib.nullcontext()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    return torch.cuda.stream(side)


def _finish():
    if DEVICE != "cpu":
        torch.cuda.synchronize()


def _check(name, rank, function, *arguments):
    start = time.monotonic()
    error = None
    try:
        function(*arguments)
        _finish()
    except Exception:
        error = traceback.format_exc()
    if rank == 0 or error:
        print(f"{'FAILED' if error else 'ok'} {name}, rank {rank}, {time.monotonic() - start:.2f} s"
              + (f"\n{error}" if error else ""), flush=True)
    if error:
        sys.exit(1)  # the others cannot go on


def be_rank(rank, num_ranks, folder, is_cpu):
    global DEVICE
    faulthandler.dump_traceback_later(LIMIT_S - 10, exit=True)  # tells where it hangs
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "WEFT_MACHINE": "cpu" if is_cpu else "cuda"}
    torch.set_num_threads(1)
    if not is_cpu:
        DEVICE = f"cuda:{rank % torch.cuda.device_count()}"
        torch.cuda.set_device(DEVICE)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                                         world_size=num_ranks)
    comm = weft.torch.communicator(timeout_ms=10000)
    if rank == 0:
        print(f"{comm}, {torch.cuda.get_device_name() if not is_cpu else 'CPUs'}", flush=True)
    for function in (memory, collectives, expert_parallel, low_latency, graph, custom_eager,
                     custom_graphs):
        _check(function.__name__, rank, function, comm)

    import deep_ep

    buffer = deep_ep.Buffer(torch.distributed.group.WORLD, low_latency_mode=True,
                            explicitly_destroy=True)
    for function in (deep_ep_normal, deep_ep_low_latency):
        _check(function.__name__, rank, function, buffer, rank, num_ranks)
    buffer.destroy()
    layers = gpu_pool.Layers(torch.distributed.group.WORLD, rank, num_ranks, DEVICE)
    for function in gpu_pool.CHECKS:
        _check(function.__name__, rank, function, layers)
    comm.host_barrier()  # rank 0 serves
    comm.destroy()
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu", type=int, metavar="RANKS", help="on CPUs, with so many ranks")
    parser.add_argument("--gpus", type=int, help="so many ranks; by default one per GPU")
    options = parser.parse_args()
    num_ranks = options.cpu or options.gpus or torch.cuda.device_count()
    if num_ranks == 0:
        print("skipped: no GPU is visible")
        return 77
    deadline = time.monotonic() + LIMIT_S
    with tempfile.TemporaryDirectory() as folder:
        ranks = torch.multiprocessing.spawn(be_rank, (num_ranks, folder, bool(options.cpu)),
                                            num_ranks, join=False)
        for process in ranks.processes:
            process.join(max(0, deadline - time.monotonic()))
        late = [rank for rank, process in enumerate(ranks.processes) if process.is_alive()]
        for process in ranks.processes:
            process.kill()
    failed = [rank for rank, process in enumerate(ranks.processes) if process.exitcode != 0]
    if late:
        print(f"FAILED ranks {late} hang")
    elif failed:
        print(f"FAILED ranks {failed}")
    else:
        print(f"ok {num_ranks} ranks")
    return 1 if late or failed else 0


if __name__ == "__main__":
    sys.exit(main())
