# SPDX-License-Identifier: MIT
"""Errors of deep_ep's normal functions, and right calls after them; skipped without PyTorch."""
import copy
import pickle
import socket
import sys
import time

import pytest
import weft
from test_deep_ep import deep_ep
from ranks import LIMIT_S
from torch_ranks import One, on_group, torch

EXPERTS = 4
HIDDEN = 64


def tokens(num_tokens, dtype=torch.bfloat16):
    ids = torch.arange(num_tokens)[:, None] % EXPERTS
    return torch.ones(num_tokens, HIDDEN, dtype=dtype), ids, torch.ones(num_tokens, 1)


def dispatch(buffer, x, ids, weights, **more):
    per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
    return buffer.dispatch(x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank,
                           num_tokens_per_expert=per_expert, topk_idx=ids, topk_weights=weights,
                           **more)


def step(buffer, num_tokens, copies=True):
    """The rows come back unchanged, from the pool or by a copy."""
    x, ids, weights = tokens(num_tokens)
    rows, _, _, _, handle, _ = dispatch(buffer, x, ids, weights)
    assert torch.equal(rows, torch.ones_like(rows))
    out, _, _ = buffer.combine(rows.clone() if copies else rows, handle)
    assert torch.equal(out, x)


def test_out_of_memory():
    """After an error the Buffer keeps and uses its memory, also for earlier dispatches. It writes
    no memory of others."""
    buffer = deep_ep.Buffer(None, comm=One())
    x, ids, weights = tokens(50)
    step(buffer, 50)
    rows, _, _, _, handle, _ = dispatch(buffer, x, ids, weights)
    used = buffer._comm.heap_info().used_bytes
    for _ in range(2):
        with pytest.raises(weft.OutOfMemoryError, match="heap_max_bytes"):
            dispatch(buffer, x, ids, weights, num_worst_tokens=2**30)
        assert buffer._comm.heap_info().used_bytes == used
        neighbour = buffer._comm.heap_empty(1 << 20, torch.uint8)
        neighbour.fill_(7)
        assert torch.equal(buffer.combine(rows.clone(), handle)[0], x)
        assert bool((neighbour == 7).all())
        buffer._comm.heap_free(neighbour)
        step(buffer, 50)
        step(buffer, 700)
        used = buffer._comm.heap_info().used_bytes
    for wrong in (2.5, "many", None):
        with pytest.raises(TypeError, match="num_worst_tokens is .* integer"):
            dispatch(buffer, x, ids, weights, num_worst_tokens=wrong)
    for wrong in (-1, 2**40):
        with pytest.raises(weft.InvalidArgumentError, match=f"num_worst_tokens is {wrong}"):
            dispatch(buffer, x, ids, weights, num_worst_tokens=wrong)
    step(buffer, 50)


def test_pool_without_room(monkeypatch):
    """Rows come to ordinary tensors if the heap has room for a batch, but not for a pool."""
    buffer = deep_ep.Buffer(None, comm=One())
    step(buffer, 5)

    def grow(num_bytes):
        raise weft.OutOfMemoryError("no pool")

    monkeypatch.setattr(buffer._callers_outputs, "grow", grow)
    for num_tokens in (3000, 3000, 10, 5000):
        step(buffer, num_tokens)
    monkeypatch.undo()
    step(buffer, 3000)


@pytest.mark.parametrize("num_ranks", [1, 2])
@on_group()
def test_handles_of_another_buffer(group, num_ranks):
    buffer = deep_ep.Buffer(group)
    x, ids, weights = tokens(9)
    rows, _, _, _, handle, _ = dispatch(buffer, x, ids, weights)
    larger = deep_ep.Buffer(group, 1 << 22)
    for _ in range(2):
        assert torch.equal(larger.combine(rows, handle)[0], x)
        assert torch.equal(larger.dispatch(x, handle=handle)[0], torch.ones_like(rows))
        assert torch.equal(larger.combine(rows.clone(), handle, async_finish=True)[0], x)
        step(larger, 20)
        buffer = None  # the handle has what it needs
    del rows, handle
    step(larger, 9)
    first = deep_ep.Buffer(group, explicitly_destroy=True)
    rows, _, _, _, handle, _ = dispatch(first, x, ids, weights)
    first.destroy()
    with pytest.raises(weft.InvalidArgumentError, match="Buffer that was destroyed"):
        larger.combine(rows, handle)
    alone = deep_ep.Buffer(None, comm=One())
    if num_ranks > 1:
        handle = dispatch(alone, x, ids, weights)[4]
        with pytest.raises(weft.InvalidArgumentError, match="handle is of another group"):
            larger.combine(x, handle)
    step(larger, 9)


@on_group(2)
def test_rank_without_rows(group):
    """A rank without rows need not know the type of the others' rows."""
    buffer = deep_ep.Buffer(group)
    x, _, weights = tokens(5)
    ids = torch.zeros(5, 1, dtype=torch.int64)  # all to rank 0
    rows, _, _, _, handle, _ = dispatch(buffer, x, ids, weights)
    for nothing in (torch.empty(0), torch.empty(0, HIDDEN), torch.empty(0, 3).half(),
                    torch.empty(3, 0, dtype=torch.int64), torch.empty(HIDDEN, 0).t(), rows):
        given = rows if len(rows) else nothing
        for w in (None, torch.ones(10, 1) if len(rows) else torch.empty(0)):
            out, sums, _ = buffer.combine(given, handle, topk_weights=w)
            assert torch.equal(out, x) and (w is None or torch.equal(sums, weights))
    narrow = x.to(torch.float8_e4m3fn), torch.ones(5, 1)
    handle = dispatch(buffer, narrow, ids, weights)[4]
    out = buffer.combine(rows if len(rows) else torch.empty(0), handle)[0]
    assert torch.equal(out, x)
    if not len(rows):
        with pytest.raises(AssertionError, match="x has 2 rows, its dispatch 0"):
            buffer.combine(x[:2], handle)
        with pytest.raises(weft.InvalidArgumentError, match="topk_weights is"):
            buffer.combine(rows, handle, topk_weights=3)
    step(buffer, 9)


@on_group(2)
def test_types_that_differ(group):
    """All ranks get an error at once, which names the argument, and go on."""
    buffer = deep_ep.Buffer(group)
    rank = group.rank()
    step(buffer, 9)
    x, ids, weights = tokens(9)
    start = time.monotonic()
    for first, second, name in (
            (x, x.float(), r"x: it is (bfloat16|float32)\[N, 64\] on this rank"),
            (x, torch.ones(9, 32).bfloat16(), r"x: it is bfloat16\[N, (64|32)\]"),
            (x, torch.empty(9, 64, 2).bfloat16(), r"\[N, 64, 2\] on"),
            (x, (x.to(torch.float8_e4m3fn), weights), r"float8_e4m3fn\[N, 64\] and float32"),
            (x, x, "num_worst_tokens: it is (0|99) on this rank")):
        more = {"num_worst_tokens": 99 * rank} if first is second else {}
        with pytest.raises(weft.MismatchError, match=f"ranks disagree on .*{name}"):
            dispatch(buffer, second if rank else first, ids, weights, **more)
        step(buffer, 9)
    with pytest.raises(weft.MismatchError, match="topk_idx: it is torch.int(64|32) on this"):
        dispatch(buffer, x, ids.int() if rank else ids, weights)
    assert time.monotonic() - start < deep_ep.exchange.TIMEOUT_MS / 2000
    rows, _, _, _, handle, _ = dispatch(buffer, x, ids, weights)
    if rank == 0:  # before anything is sent
        for wrong in (rows.float(), rows[:, :32].contiguous(), rows[:, None]):
            with pytest.raises(weft.InvalidArgumentError, match=r"dispatch was bfloat16\[N"):
                buffer.combine(wrong, handle)
        with pytest.raises(weft.InvalidArgumentError, match="x is not contiguous"):
            buffer.combine(rows.t().contiguous().t(), handle)
        for wrong in (torch.ones(3), torch.ones(len(rows), 2), torch.ones(len(rows), 1).half()):
            with pytest.raises(weft.InvalidArgumentError, match="topk_weights is"):
                buffer.combine(rows, handle, topk_weights=wrong)
        with pytest.raises(weft.InvalidArgumentError, match=r"room for \d+ bytes a token"):
            buffer.dispatch(x.float().repeat(1, 2), handle=handle)
        for wrong in (x[:3], x.t().contiguous().t(), x[:1].expand(9, 64)):
            with pytest.raises(weft.InvalidArgumentError, match=r"x\[0\] has"):
                dispatch(buffer, wrong, ids, weights)
        for wrong in (None, [x], 3, torch.tensor(1.), ()):
            with pytest.raises(weft.InvalidArgumentError, match="x is .* must be a tensor"):
                dispatch(buffer, wrong, ids, weights)
        for function in (lambda: dispatch(buffer, x, ids, weights, config=3),
                         lambda: buffer.dispatch(x, handle=handle, config=3),
                         lambda: buffer.combine(rows, handle, config=3)):
            with pytest.raises(weft.InvalidArgumentError, match="config is a int"):
                function()
        tables = dict(zip(("is_token_in_rank", "num_tokens_per_expert"),
                          (handle[4], buffer.get_dispatch_layout(ids, EXPERTS)[2])))
        for wrong in (3, ids[:, 0]):
            with pytest.raises(weft.InvalidArgumentError, match="topk_idx is"):
                buffer.dispatch(x, topk_idx=wrong, topk_weights=weights, **tables)
        right = tables | {"x": x, "topk_idx": ids, "topk_weights": weights}
        for name in right:
            with pytest.raises(weft.InvalidArgumentError,
                               match=rf"{name}.* is torch.sparse_coo; it must be a dense"):
                buffer.dispatch(**right | {name: right[name].to_sparse()})
    assert torch.equal(buffer.combine(rows, handle)[0], x)
    step(buffer, 9)


@on_group(2)
def test_too_few_worst_tokens(group):
    """All ranks get an error with the number that is enough."""
    buffer = deep_ep.Buffer(group)
    x, _, weights = tokens(12)
    ids = torch.zeros(12, 1, dtype=torch.int64)  # 24 rows come to rank 0
    for worst in (10, 23):
        rows, _, _, _, handle, _ = dispatch(buffer, x, ids, weights, num_worst_tokens=worst)
        for _ in range(2):
            with pytest.raises(weft.CapacityError, match=f"was {worst}, and 24 rows"):
                buffer.combine(rows, handle)
            with pytest.raises(weft.CapacityError, match=f"was {worst}, and 24 rows"):
                buffer.dispatch(x, handle=handle)
        step(buffer, 12)
    rows, _, _, _, handle, _ = dispatch(buffer, x, ids, weights, num_worst_tokens=24)
    assert torch.equal(buffer.combine(rows, handle)[0], x)


def test_wrong_arguments():
    buffer = deep_ep.Buffer(None, comm=One())
    x, ids, weights = tokens(4)
    assert deep_ep.utils.EventOverlap is deep_ep.EventOverlap
    for wrong in (ids[:, 0], ids[None], None, [[0]]):
        with pytest.raises(weft.InvalidArgumentError, match="topk_idx is .* must be a tensor"):
            buffer.get_dispatch_layout(wrong, EXPERTS)
    for wrong in (0, -1, 1 << 30):
        with pytest.raises(weft.InvalidArgumentError, match=f"num_experts is {wrong}, allowed"):
            buffer.get_dispatch_layout(ids, wrong)
    tables = torch.ones(4, 1, dtype=torch.bool), torch.ones(EXPERTS, dtype=torch.int32)
    for name, in_rank, per_expert in (
            ("is_token_in_rank", tables[0].float(), tables[1]),
            ("is_token_in_rank", tables[0].repeat(1, 2), tables[1]),
            ("is_token_in_rank", 3, tables[1]),
            ("num_tokens_per_expert", tables[0], tables[1].long()),
            ("num_tokens_per_expert", tables[0], [1, 1, 1, 1]),
            ("num_experts", tables[0], tables[1][:0])):
        with pytest.raises(weft.InvalidArgumentError, match=f"{name} is"):
            buffer.dispatch(x, num_tokens_per_rank=None, is_token_in_rank=in_rank,
                            num_tokens_per_expert=per_expert)
    rows, _, _, _, handle, _ = dispatch(buffer, x, ids, weights)
    of_low_latency = buffer.low_latency_dispatch(x, ids, 4, 4, use_fp8=False)[2]
    for wrong in (tuple(handle), None, 3, of_low_latency):
        with pytest.raises(weft.InvalidArgumentError, match="must be what dispatch"):
            buffer.combine(rows, wrong)
    for copied in (handle, buffer, handle.weft, handle.weft.handle):
        for function in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="can be neither copied nor pickled"):
                function(copied)
    for made in (deep_ep.Buffer, type(handle), type(handle.weft), weft.Handle, weft.torch.Pool,
                 weft.torch.Routing, weft.arrays.Block, weft.objects.Native):
        object.__new__(made) if made is not type(handle) else tuple.__new__(made)
    assert torch.equal(buffer.combine(rows, handle)[0], x)


def test_what_frameworks_ask_for():
    """Keywords of today's callers do what they say, or are refused by their switch's name."""
    buffer = deep_ep.Buffer(None, 0, 0, low_latency_mode=True, num_nvl_peers=8, use_fabric=True,
                            comm=One())
    x, ids, weights = tokens(4)
    for asked in {"use_nvfp4": True}, {"x_global_scale": torch.ones(1)}:
        with pytest.raises(weft.UnsupportedError, match="VLLM_DEEPEPLL_NVFP4_DISPATCH"):
            buffer.low_latency_dispatch(x, ids, 4, EXPERTS, **asked)
    rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, 4, EXPERTS, use_fp8=False,
                                                        use_nvfp4=False, x_global_scale=None)
    combined = buffer.low_latency_combine(rows, ids, weights, handle)
    torch.testing.assert_close(combined[0],
                               (x.float() * weights.sum(1, keepdim=True)).bfloat16())


def test_nothing_complains(capfd):
    """Objects whose __init__ did not run, as compilers make them, end silently."""
    test_wrong_arguments()
    assert capfd.readouterr().err == ""


def test_environment(monkeypatch):
    for name, wrong, allowed in (
            ("WEFT_DEEP_EP_POOL_BYTES", ("1G", "-1", "1.5", str(2**63)), "a number of 0"),
            ("WEFT_DEEP_EP_COMBINE", ("none", "SUMS"), "auto, sums or rows")):
        for value in wrong:
            monkeypatch.setenv(name, value)
            with pytest.raises(weft.InvalidArgumentError,
                               match=f"{name} is '{value}'; it must be {allowed}"):
                deep_ep.Buffer(None, comm=One())
        monkeypatch.setenv(name, "")
        step(deep_ep.Buffer(None, comm=One()), 4)
    monkeypatch.setattr(weft.torch, "unique_id_at", lambda address, port, secret: address)
    monkeypatch.setattr(weft.torch, "serve_rendezvous", lambda address: None)
    monkeypatch.setenv("WEFT_ADDR", "")
    assert weft.torch._serve(is_on_one_host=False) == socket.gethostname()
    monkeypatch.setenv("WEFT_ADDR", "127.0.0.1")
    assert isinstance(weft.torch._serve(is_on_one_host=False), bytes)
    for wrong in ({"num_nvl_bytes": 1.5}, {"num_rdma_bytes": None}):
        with pytest.raises(TypeError, match="bytes is .* integer"):
            deep_ep.Buffer(None, comm=One(), **wrong)
    with pytest.raises(weft.InvalidArgumentError, match="num_nvl_bytes is -1"):
        deep_ep.Buffer(None, -1, comm=One())


@on_group(2)
def test_settings_that_differ(group, monkeypatch):
    """Sizes may differ. Any other wrong setting of a rank is an error on all ranks."""
    rank = group.rank()
    monkeypatch.setenv("WEFT_DEEP_EP_POOL_BYTES", str(rank << 24))
    buffer = deep_ep.Buffer(group, num_nvl_bytes=rank << 20, num_rdma_bytes=(1 - rank) << 20)
    for num_tokens in (3, 300, 7, 5000):
        step(buffer, num_tokens)
    monkeypatch.setenv("WEFT_DEEP_EP_COMBINE", "rows" if rank else "sums")
    with pytest.raises(weft.MismatchError, match="disagree on WEFT_DEEP_EP_COMBINE: "
                       "(rows on this rank, sums|sums on this rank, rows) on rank"):
        deep_ep.Buffer(group)
    monkeypatch.setenv("WEFT_DEEP_EP_COMBINE", "")
    monkeypatch.setenv("WEFT_DEEP_EP_POOL_BYTES", "1G" if rank else "1")
    with pytest.raises(weft.InvalidArgumentError, match="WEFT_DEEP_EP_POOL_BYTES is '1G'"):
        deep_ep.Buffer(group)
    monkeypatch.setenv("WEFT_DEEP_EP_POOL_BYTES", "")
    with pytest.raises(weft.MismatchError, match="disagree on enable_shrink"):
        deep_ep.Buffer(group, enable_shrink=rank == 0)
    step(deep_ep.Buffer(group), 9)


def test_destroy_of_the_last(tmp_path):
    """destroy() does not wait for ranks that have left in good order."""
    import subprocess

    script = f"""
import os, sys, time, torch, torch.distributed as dist
sys.path.insert(0, {sys.path[0]!r})
import deep_ep
rank = int(os.fork() != 0)
dist.init_process_group("gloo", init_method="file://{tmp_path}/meet", rank=rank, world_size=2)
buffer = deep_ep.Buffer(dist.group.WORLD, explicitly_destroy=True)
dist.barrier()
if rank == 0:
    raise SystemExit
pid, status = os.wait()
assert status == 0
time.sleep(0.2)
buffer.destroy()
print("destroyed")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)
    assert (done.returncode, done.stdout) == (0, "destroyed\n"), done.stderr
