# SPDX-License-Identifier: MIT
"""The drop-in for DeepEP: what its callers rely on; skipped without PyTorch."""
import gc
import os
import shutil
import subprocess
import sys

import pytest
from oracle import Routing, even_placement
from ranks import run_peer_test
from torch_ranks import on_group, torch
from weft.drop_in import folder

sys.path.insert(0, folder())
import deep_ep  # noqa: E402
from deep_ep.utils import math as deep_ep_math  # noqa: E402

EXPERTS, TOPK, HIDDEN = 16, 4, 512


def batch(rank, num_tokens):
    """BF16 rows of small integers, whose sums are exact; ids, some of them -1; weights."""
    generator = torch.Generator().manual_seed(rank)
    x = torch.randint(-8, 8, (num_tokens, HIDDEN), generator=generator).to(torch.bfloat16)
    ids = torch.rand(num_tokens, EXPERTS, generator=generator).topk(TOPK).indices
    ids[torch.rand(ids.shape, generator=generator) < 0.1] = -1
    return x, ids, torch.rand(num_tokens, TOPK, generator=generator)


def tokens_of(rank):
    return (7 * rank + 5) % 12  # rank 1 has none


def everybody(num_ranks):
    batches = [batch(r, tokens_of(r)) for r in range(num_ranks)]
    return batches, Routing([ids.numpy() for _, ids, _ in batches],
                            even_placement(EXPERTS, num_ranks))


def expected_rows(routing, batches, rank):
    order = routing.rows_of(rank)
    rows = torch.stack([batches[s][0][t] for s, t in order]) if order else \
        torch.empty(0, HIDDEN, dtype=torch.bfloat16)
    local = torch.tensor([routing.local_ids(rank, s, t) for s, t in order]).view(-1, TOPK)
    weights = torch.stack([batches[s][2][t] for s, t in order]) if order else torch.empty(0, TOPK)
    return rows, local, weights.masked_fill(local < 0, 0)


def check_sums(out, x, ids, weights, most=1e-5):
    """The experts returned the rows that came."""
    exact = x.double() * weights.masked_fill(ids < 0, 0).double().sum(1, keepdim=True)
    assert deep_ep_math.calc_diff(out, exact) < most


def layout_of(buffer, ids):
    per_rank, per_node, per_expert, in_rank, event = buffer.get_dispatch_layout(ids, EXPERTS)
    assert event.event is None
    return {"num_tokens_per_rank": per_rank, "num_tokens_per_rdma_rank": per_node,
            "num_tokens_per_expert": per_expert, "is_token_in_rank": in_rank}


@pytest.mark.parametrize("num_ranks", [1, 3, 10])
@on_group()
def test_layout(group, num_ranks):
    batches, routing = everybody(num_ranks)
    rank = group.rank()
    layout = layout_of(deep_ep.Buffer(group), batches[rank][1])
    routes = [routing.ranks_of(rank, t) for t in range(tokens_of(rank))]
    in_rank = torch.tensor([[r in ranks for r in range(num_ranks)] for ranks in routes],
                           dtype=torch.bool).view(-1, num_ranks)
    assert torch.equal(layout["is_token_in_rank"], in_rank)
    per_rank = layout["num_tokens_per_rank"]
    assert per_rank.dtype == torch.int32 and torch.equal(per_rank, in_rank.sum(0).int())
    per_node = layout["num_tokens_per_rdma_rank"]
    assert (per_node is None) == (num_ranks <= 8)
    if per_node is not None:
        assert per_node.tolist() == [
            sum(any(r // 8 == node for r in ranks) for ranks in routes) for node in (0, 1)]
    assert layout["num_tokens_per_expert"].tolist() == [
        int((batches[rank][1] == e).sum()) for e in range(EXPERTS)]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("num_ranks", [2, 3])
@on_group()
def test_normal(group, num_ranks, asynchronous):
    batches, routing = everybody(num_ranks)
    rank = group.rank()
    x, ids, weights = batches[rank]
    rows, local, local_weights = expected_rows(routing, batches, rank)
    buffer = deep_ep.Buffer(group, int(1e9), explicitly_destroy=True)
    layout = layout_of(buffer, ids)
    when = {"async_finish": asynchronous}
    if asynchronous:
        when |= {"previous_event": buffer.capture(), "allocate_on_comm_stream": True}

    def finished(event):
        assert (event.event is not None) == asynchronous
        if asynchronous:
            event.current_stream_wait()

    narrow, scales = deep_ep_math.per_token_cast_to_fp8(x)
    for given in (x, (narrow, scales.T.contiguous().T)):
        got, got_ids, got_weights, counts, handle, event = buffer.dispatch(
            given, topk_idx=ids, topk_weights=weights, expert_alignment=8, **layout, **when)
        finished(event)
        if given is x:
            assert torch.equal(got, rows)
        else:
            assert got[1].is_contiguous() and got[0].dtype == torch.float8_e4m3fn
            assert deep_ep_math.calc_diff(deep_ep_math.per_token_cast_back(*got),
                                          rows) < 1e-3 or not len(rows)
        assert torch.equal(got_ids, local) and torch.equal(got_weights, local_weights)
        assert counts == [(n + 7) // 8 * 8 for n in routing.per_expert(rank)]
        ends = [sum(s <= r for s, _ in routing.rows_of(rank)) for r in range(num_ranks)]
        assert [handle[0][r][rank].item() for r in range(num_ranks)] == ends
        assert handle[3].tolist() == [t for _, t in routing.rows_of(rank)]
        assert handle[4] is layout["is_token_in_rank"] and len(handle) == 6

        cached = buffer.dispatch(given, handle=handle, **when)
        assert cached[1:5] == (None,) * 4
        assert torch.equal(cached[0], got) if given is x else torch.equal(cached[0][1], got[1])

    bias = torch.ones_like(x)
    out, out_weights, event = buffer.combine(rows, handle, topk_weights=got_weights,
                                             bias=(bias, None), **when)
    finished(event)
    count = layout["is_token_in_rank"].sum(1, keepdim=True)
    assert torch.equal(out, (x * count + 1).to(torch.bfloat16))
    assert torch.equal(out_weights, weights.masked_fill(ids < 0, 0))
    assert buffer.combine(rows, handle)[1] is None
    buffer.destroy()
    assert buffer.runtime is None


@on_group(2)
def test_normal_with_an_expert_twice(group):
    """Its token has one row, which names the expert for each choice. combine adds the row once."""
    batches = [batch(r, 5) for r in range(2)]
    for _, ids, _ in batches:
        ids[::2, 1:] = ids[::2, :1]  # all choices are the first one
        ids[1, 0] = ids[1, -1]
    routing = Routing([ids.numpy() for _, ids, _ in batches], even_placement(EXPERTS, 2))
    rank = group.rank()
    x, ids, weights = batches[rank]
    rows, local, local_weights = expected_rows(routing, batches, rank)
    buffer = deep_ep.Buffer(group, explicitly_destroy=True)
    layout = layout_of(buffer, ids)
    assert layout["num_tokens_per_expert"].tolist() == [
        int((ids == e).sum()) for e in range(EXPERTS)]
    got, got_ids, got_weights, counts, handle, _ = buffer.dispatch(
        x, topk_idx=ids, topk_weights=weights, **layout)
    assert torch.equal(got, rows) and counts == routing.per_expert(rank)
    assert torch.equal(got_ids, local) and torch.equal(got_weights, local_weights)
    out, out_weights, _ = buffer.combine(got, handle, topk_weights=got_weights)
    assert torch.equal(out, x * layout["is_token_in_rank"].sum(1, keepdim=True))
    assert torch.equal(out_weights, weights.masked_fill(ids < 0, 0))
    buffer.destroy()


@on_group(3)
def test_without_topk_and_worst_case(group):
    batches, routing = everybody(3)
    rank = group.rank()
    x, ids, weights = batches[rank]
    rows, local, _ = expected_rows(routing, batches, rank)
    buffer = deep_ep.Buffer(group)
    layout = layout_of(buffer, ids)
    got, *none, counts, handle, event = buffer.dispatch(x, **layout)
    assert torch.equal(got, rows) and none == [None, None]
    assert counts == routing.per_expert(rank)
    out, _, _ = buffer.combine(got, handle)
    assert torch.equal(out, x * layout["is_token_in_rank"].sum(1, keepdim=True))

    worst = 40
    got, got_ids, got_weights, counts, handle, event = buffer.dispatch(
        x, topk_idx=ids, topk_weights=weights, num_worst_tokens=worst, **layout)
    assert counts == [] and len(got) == len(got_ids) == len(got_weights) == worst
    assert torch.equal(got[:len(rows)], rows) and torch.equal(got_ids[:len(rows)], local)
    assert (got_ids[len(rows):] == -1).all()
    out, _, _ = buffer.combine(got, handle)
    assert torch.equal(out, x * layout["is_token_in_rank"].sum(1, keepdim=True))
    with pytest.raises(AssertionError, match="rows"):
        buffer.combine(rows[:1], handle)
    with pytest.raises(AssertionError, match="explicitly_destroy"):
        buffer.destroy()


@on_group(2)
def test_growth_and_pools(group):
    """Batches and numbers of experts that grow, two buffers, handles that die in any order."""
    buffers = [deep_ep.Buffer(group), deep_ep.Buffer(group)]
    handles = []
    for num_tokens in (3, 300, 7):
        for experts in (8, 32, 4):
            generator = torch.Generator().manual_seed(num_tokens + group.rank())
            x = torch.rand(num_tokens, 64, generator=generator).to(torch.bfloat16)
            ids = torch.rand(num_tokens, experts, generator=generator).topk(2).indices
            for buffer in buffers:
                per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, experts)
                got, _, _, _, handle, _ = buffer.dispatch(
                    x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank,
                    num_tokens_per_expert=per_expert)
                handles.append((buffer, handle, got, x, in_rank))
    for buffer, handle, got, x, in_rank in handles[::-1]:
        out, _, _ = buffer.combine(got, handle)
        assert torch.equal(out, (x.float() * in_rank.sum(1, keepdim=True)).bfloat16())
    del handles, handle
    gc.collect()


@on_group(2)
def test_outputs_lie_in_the_heap(group):
    """Where there is room, which grows with batches; else they are copied, with the same result."""
    batches, routing = everybody(2)
    x, ids, weights = batches[group.rank()]
    rows, local, local_weights = expected_rows(routing, batches, group.rank())
    buffer = deep_ep.Buffer(group)
    layout = layout_of(buffer, ids)
    kept, places = [], []
    for _ in range(600):
        got, got_ids, got_weights, _, handle, _ = buffer.dispatch(
            x, topk_idx=ids, topk_weights=weights, **layout)
        assert torch.equal(got, rows) and torch.equal(got_ids, local)
        assert torch.equal(got_weights, local_weights)
        kept.append(got)
        places.append(buffer._comm.is_direct(got))
        out, out_weights, _ = buffer.combine(got, handle, topk_weights=got_weights)
        assert torch.equal(out, x * layout["is_token_in_rank"].sum(1, keepdim=True))
        assert torch.equal(out_weights, weights.masked_fill(ids < 0, 0))
    assert places[0] and not places[-1]
    assert all(torch.equal(each, rows) for each in kept)
    del kept, got
    again = [buffer._comm.is_direct(buffer.dispatch(x, handle=handle)[0]) for _ in range(70)]
    assert any(again)  # though not at once
    assert buffer.pool is None


@on_group(2)
def test_end(group):
    """The communicator ends with the last tensor, or handle, of a buffer that was destroyed."""
    x, ids, weights = everybody(2)[0][group.rank()]
    buffer = deep_ep.Buffer(group, explicitly_destroy=True)
    got, _, _, _, handle, _ = buffer.dispatch(x, topk_idx=ids, topk_weights=weights,
                                              **layout_of(buffer, ids))
    buffer.combine(got.clone(), handle)
    native = buffer._comm._native
    buffer.destroy()
    same = got.clone()
    assert native.address is not None and torch.equal(got, same)
    del got, handle, _
    gc.collect()
    assert native.address is None


def test_what_callers_compute():
    hint = deep_ep.Config(20, 6, 256).get_nvl_buffer_size_hint(14336, 8)
    assert hint == 335709824
    assert deep_ep.Config(20, 36, 288, 20, 128).get_rdma_buffer_size_hint(14336, 16) == 91887744
    assert deep_ep.Buffer.get_low_latency_rdma_size_hint(128, 7168, 8, 288) == 2146961792
    assert deep_ep.Buffer.get_dispatch_config(8).num_sms == deep_ep.Buffer.num_sms == 20
    deep_ep.Buffer.set_num_sms(24)
    assert deep_ep.Buffer.get_combine_config(16).num_sms == 24
    deep_ep.Buffer.set_num_sms(20)
    for num_ranks in (1, 7, 12, 200):  # which DeepEP refuses
        config = deep_ep.Buffer.get_dispatch_config(num_ranks)
        assert config.get_nvl_buffer_size_hint(14336, num_ranks) > 0
        assert (config.get_rdma_buffer_size_hint(14336, num_ranks) > 0) == (num_ranks > 8)
    with pytest.raises(AssertionError):
        deep_ep.Buffer.get_dispatch_config(0)
    with pytest.raises(AssertionError):
        deep_ep.Buffer.set_num_sms(3)
    for wrong in ((-1,), (20, 6, 6), (20, 6, 256, 65, 128), (20, 0)):
        with pytest.raises(RuntimeError):
            deep_ep.Config(*wrong)
    with pytest.raises(ValueError):
        deep_ep.Buffer(None)
    assert not hasattr(deep_ep, "BucketBuffer")
    assert deep_ep.topk_idx_t is torch.int64
    event = deep_ep.EventOverlap()
    with event:
        pass
    with pytest.raises(AssertionError):
        event.current_stream_wait()


@pytest.mark.parametrize("names", [["weft-deep-ep"], ["deep_ep"], ["weft_deep_ep", "deep_ep"]])
def test_folder_of_two_distributions(tmp_path, names):
    shutil.copytree(os.path.join(folder(), "deep_ep"), tmp_path / "deep_ep")
    for name in names:
        about = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "RECORD").write_text(f"deep_ep/__init__.py,,\n{about.name}/RECORD,,\n")
    done = subprocess.run(
        [sys.executable, "-c", "import deep_ep"], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ['PYTHONPATH']}"})
    if "deep_ep" in names:
        assert done.returncode == 1 and "belongs to deep_ep too" in done.stderr, done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["BucketBuffer", "EngramBuffer"])
def test_import_of_what_is_not_there(name):
    with pytest.raises(ImportError, match=f"no {name}: .*drop-in, with Buffer, .*ElasticBuffer"):
        exec(f"from deep_ep import Buffer, {name}")
    assert not hasattr(deep_ep, name)
    with pytest.raises(AttributeError, match="drop-in, with Buffer"):
        getattr(deep_ep, name)
    with pytest.raises(ImportError, match="cannot import name 'Bufer'"):
        exec("from deep_ep import Bufer")


def test_arithmetic():
    ids = torch.tensor([[3, 1, 3, -1], [-1, -1, -1, -1], [0, 2, 1, 3]])
    deep_ep_math.inplace_unique(ids, 5)
    assert ids.tolist() == [[3, 1, -1, -1], [-1] * 4, [3, 2, 1, 0]]
    scores = deep_ep_math.create_grouped_scores(torch.ones(2, 6), torch.tensor([[0], [2]]), 3)
    assert scores.tolist() == [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]]
    x = torch.randn(5, 300).to(torch.bfloat16)
    narrow, scales = deep_ep_math.per_token_cast_to_fp8(x)
    assert narrow.shape == x.shape and scales.shape == (5, 3)
    assert deep_ep_math.calc_diff(x, x) == 0 < deep_ep_math.calc_diff(x, x + 1)


@on_group(1)
def test_local_buffer(group):
    buffer = deep_ep.Buffer(group, num_rdma_bytes=1024, low_latency_mode=True)
    whole = buffer.get_local_buffer_tensor(torch.int32, use_rdma_buffer=True)
    whole[:] = 7
    part = buffer.get_local_buffer_tensor(torch.int16, torch.Size([3, 2]), 512, True)
    assert part.tolist() == [[7, 0]] * 3 and whole.numel() == 256


@pytest.mark.parametrize("name, options", [
    ("intranode", ["--num-processes", "4"]), ("low_latency", ["--num-processes", "4"]),
    ("low_latency", ["--use-logfmt"])])
def test_of_deep_ep_itself(name, options):
    """Its own programs, unmodified, which are no part of this project."""
    folder_of_tests = os.environ.get("WEFT_TEST_DEEP_EP")
    if not folder_of_tests:
        pytest.skip("WEFT_TEST_DEEP_EP does not name a folder of DeepEP's tests")
    run_peer_test(folder_of_tests, name, *options, drop_in=folder())
