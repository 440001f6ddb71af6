# SPDX-License-Identifier: MIT
"""Low latency of the drop-in for DeepEP after calls that are refused or given up, with shapes that
change, and with ranks that are masked; skipped without PyTorch."""
import os
import signal
from contextlib import suppress

import pytest
import weft
from torch_ranks import One, in_group, on_group, torch

import soak_deep_ep
from soak_refusals import memory_limit

deep_ep = soak_deep_ep.deep_ep

TOKENS, EXPERTS = 6, 6


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.setenv("WEFT_MACHINE", "cpu")
    return lambda **options: deep_ep.Buffer(None, 0, 0, True, comm=One(), **options)


def step(buffer, *, max_tokens=8, hidden=128, num_experts=EXPERTS, num_topk=6, hook=False,
         use_fp8=False, round_scale=False, **combined):
    """Every token chooses the first experts, which return ones: the number of those reached."""
    x = torch.ones(TOKENS, hidden).bfloat16()
    ids, weights = torch.arange(num_topk).repeat(TOKENS, 1), torch.ones(TOKENS, num_topk)
    rows, counts, handle, _, receive = buffer.low_latency_dispatch(
        x, ids, max_tokens, num_experts, use_fp8=use_fp8, round_scale=round_scale,
        return_recv_hook=hook)
    if hook:
        receive()
    shape = (rows[0] if use_fp8 else rows).shape
    out, _, receive = buffer.low_latency_combine(torch.ones(shape).bfloat16(), ids, weights, handle,
                                                 return_recv_hook=hook, **combined)
    if hook:
        receive()
    assert (out == out[0, 0]).all()
    return out[0, 0].item()


@pytest.mark.parametrize("nodes", ["1", "2"])
@pytest.mark.parametrize("masks", [False, True])
def test_random_calls(masks, nodes, monkeypatch):
    """A short run of soak_deep_ep.py."""
    monkeypatch.setenv("WEFT_NODES", nodes)
    first, last = soak_deep_ep.soak(400, 1, masks)
    for name in ("heap", "threads", "descriptors"):
        assert last[name] <= first[name], name


@pytest.mark.parametrize("hook", [False, True])
def test_wrong_arguments_are_refused_at_once(alone, hook):
    """Wrong arguments of the receiving phase, too. The next step is right."""
    buffer, how = alone(), {"return_recv_hook": hook}
    x, ids = torch.ones(4, 128).bfloat16(), torch.arange(4)[:, None]
    weights = torch.ones(4, 1)
    words = torch.zeros(8, dtype=torch.int32)

    def dispatch(**wrong):
        return buffer.low_latency_dispatch(x, ids, 4, 4, use_fp8=False, **how, **wrong)

    def combine(rows, handle, weights=weights, **wrong):
        out, _, receive = buffer.low_latency_combine(rows, ids, weights, handle, **how, **wrong)
        if hook:
            receive()
        return out

    for wrong in ({"cumulative_local_expert_recv_stats": torch.zeros(4, dtype=torch.int64)},
                  {"cumulative_local_expert_recv_stats": torch.zeros(5, dtype=torch.int32)},
                  {"dispatch_wait_recv_cost_stats": torch.zeros(1)},
                  {"cumulative_local_expert_recv_stats": words[:4],
                   "dispatch_wait_recv_cost_stats": words[2:4].view(torch.int64)}):
        with pytest.raises(weft.InvalidArgumentError):
            dispatch(**wrong)
        rows, _, handle, _, receive = dispatch()
        if hook:
            receive()
        for wrong in ({"out": torch.empty(4, 128)}, {"out": torch.empty(3, 128).bfloat16()},
                      {"combine_wait_recv_cost_stats": torch.zeros(1)},
                      {"weights": weights.bfloat16()}, {"handle": (1, 2)}):
            with pytest.raises(weft.InvalidArgumentError):
                combine(**{"rows": rows, "handle": handle} | wrong)
        assert combine(rows, handle).eq(1).all()


@pytest.mark.parametrize("next_hook", [False, True])
@pytest.mark.parametrize("given_up", ["dispatch", "combine", "both"])
def test_hooks_that_are_never_called(alone, given_up, next_hook):
    buffer = alone()
    x, ids = torch.ones(TOKENS, 128).bfloat16(), torch.zeros(TOKENS, 1, dtype=torch.int64)
    for _ in range(4):
        rows, _, handle, _, receive = buffer.low_latency_dispatch(
            x, ids, 8, EXPERTS, use_fp8=False, return_recv_hook=True)
        if given_up == "combine":
            receive()
        if given_up != "dispatch":
            buffer.low_latency_combine(rows, ids, torch.ones(TOKENS, 1), handle,
                                       return_recv_hook=True)
    for max_tokens in (8, 7, 20, 8):
        assert step(buffer, max_tokens=max_tokens, hook=next_hook) == 6


def test_a_step_may_have_any_number_of_tokens(alone):
    """Memory is at most that of twice the largest number of tokens."""
    buffer, most = alone(), alone()
    step(most, max_tokens=64)
    for max_tokens in (*range(TOKENS, 65), 7, 64, 30):
        assert step(buffer, max_tokens=max_tokens) == 6
    used = [b._comm.heap_info().used_bytes for b in (buffer, most)]
    assert used[0] <= 2 * used[1]


def test_results_outlive_shapes(alone):
    """A handle and a hook serve after a step with more tokens."""
    buffer = alone()
    x, ids = torch.ones(TOKENS, 128).bfloat16(), torch.arange(TOKENS)[:, None]
    rows, counts, handle, _, receive = buffer.low_latency_dispatch(
        x, ids, TOKENS, EXPERTS, use_fp8=False, return_recv_hook=True)
    assert step(buffer, max_tokens=50, num_topk=1) == 1
    receive()
    assert counts.tolist() == [1] * 6 and rows[:, 0].eq(1).all()
    out, _, _ = buffer.low_latency_combine(rows, ids, torch.ones(TOKENS, 1), handle)
    assert out.eq(1).all()


@pytest.mark.parametrize("tokens", [5000, 65000])
@pytest.mark.parametrize("has_memory", [False, True])
def test_hooks_outlive_a_lack_of_room(alone, has_memory, tokens):
    """With masks, of which all shapes share the memory: new shapes do not fit beside the others,
    or into all of it, and it cannot, or can, become larger."""
    buffer = alone(enable_shrink=True)
    ids = torch.arange(TOKENS)[:, None] % EXPERTS
    for _ in range(2):
        rows, counts, handle, _, receive = buffer.low_latency_dispatch(
            torch.ones(TOKENS, 128).bfloat16(), ids, TOKENS, EXPERTS, use_fp8=False,
            return_recv_hook=True)
        with memory_limit(is_set=not has_memory):
            for num_topk in (1, 2, 3, 4):
                with suppress(() if has_memory else weft.OutOfMemoryError):
                    got = step(buffer, max_tokens=tokens, hidden=256, num_topk=num_topk)
                    assert got == num_topk and (has_memory or tokens == 5000)
        receive()
        assert counts.tolist() == [1] * EXPERTS and rows[:, 0].eq(1).all()
        out, _, _ = buffer.low_latency_combine(rows, ids, torch.ones(TOKENS, 1), handle)
        assert out.eq(1).all() and step(buffer) == 6


def test_many_shapes_do_not_grow(alone):
    buffer = alone()
    used = []
    for _ in range(2):
        for hidden in range(16, 16 * 40, 16):
            assert step(buffer, hidden=hidden) == 6
        used.append(buffer._comm.heap_info().used_bytes)
    assert used[0] == used[1]


def test_use_logfmt_changes_nothing(alone):
    buffer, used = alone(), []
    for use_logfmt in (False, True):
        assert step(buffer, use_logfmt=use_logfmt) == 6
        used.append(buffer._comm.heap_info().used_bytes)
    assert used[0] == used[1]


def test_the_library_chooses_how_rows_go(alone):
    buffer = alone()
    ids = torch.tensor([[0, 1]])
    handle = buffer.low_latency_dispatch(torch.ones(1, 128).bfloat16(), ids, 8, EXPERTS)[2]
    sizes = handle.room.ll.sizes
    assert sizes.carrier == weft.LlCarrier.SIGNALS and b"cuda" in sizes.carrier_reason
    assert "carrier signals" in repr(handle.room.ll)


def step_of(buffer, ids, max_tokens, *, hook=False, **combined):
    """Rows of experts, their numbers, and what comes of weights of 0.5, 0.25, ..., if experts
    return their rows."""
    ids = torch.tensor(ids)
    x = torch.arange(1, len(ids) + 1).bfloat16()[:, None].repeat(1, 128)
    weights = torch.tensor([0.5 ** (k + 1) for k in range(ids.shape[1])]).repeat(len(ids), 1)
    rows, counts, handle, _, receive = buffer.low_latency_dispatch(
        x, ids, max_tokens, EXPERTS, use_fp8=False, return_recv_hook=hook)
    if hook:
        receive()
    out, _, receive = buffer.low_latency_combine(rows, ids, weights, handle, return_recv_hook=hook,
                                                 **combined)
    if hook:
        receive()
    assert (out == out[:, :1]).all()
    return rows[:, :, 0], counts, out[:, 0].tolist()


@pytest.mark.parametrize("how", [{}, {"hook": True}, {"use_logfmt": True}], ids=str)
def test_an_expert_twice(alone, how):
    """It has a row for each time."""
    rows, counts, sums = step_of(alone(), [[0, 1], [2, 2], [-1, -1], [1, 2]], 8, **how)
    assert counts.tolist() == [1, 2, 3, 0, 0, 0]
    assert [rows[e, :n].tolist() for e, n in enumerate(counts[:3])] == [[1], [1, 4], [2, 2, 4]]
    assert sums == [0.75, 1.5, 0, 3]


def test_an_expert_too_often(alone):
    buffer = alone()
    for max_tokens, ids in ((2, [[0, 0], [0, 1]]), (3, [[4, 4], [4, 4], [-1, -1]])):
        named = ids[0][0]
        with pytest.raises(weft.InvalidArgumentError, match=f"expert {named} [34] times"):
            step_of(buffer, ids, max_tokens)
        assert step(buffer) == 6


def test_an_expert_too_often_where_nobody_looks(monkeypatch):
    """As on GPUs. There is room in the larger weft_ll of an earlier step, not in the tensors."""
    def look(group):
        monkeypatch.setattr("deep_ep.low_latency._check_choices", lambda *_: None)
        buffer = deep_ep.Buffer(group, 0, 0, True)
        assert step_of(buffer, [[5, 0]], 16)[2] == [0.75]
        many = [[5, 5], [5, 5]] if group.rank() == 0 else [[5, 1]]
        with pytest.raises(weft.CapacityError,
                           match="expert 5 on rank 1 has room for 4 rows .* 5 times: .* rank 0"):
            step_of(buffer, many, 2)
            step_of(buffer, many, 2)
        return "told"

    assert in_group(look, 2) == ["told"] * 2


VARIED = [{"max_tokens": 16}, {"max_tokens": 7}, {"hidden": 256}, {"num_topk": 5},
          {"num_experts": 9}, {"use_fp8": True}, {"use_fp8": True, "round_scale": True},
          {"use_logfmt": True}, {"hook": True}]


def reached(varied, num_ranks):
    """The number of chosen experts that the first num_ranks of three ranks have."""
    num_experts = varied.get("num_experts", EXPERTS)
    return min(varied.get("num_topk", 6), num_experts * num_ranks // 3)


def test_a_first_step_after_a_rank_has_died():
    """After the death steps of new shapes and of the old one reach the other two ranks."""
    def look(group):
        buffer = deep_ep.Buffer(group, 0, 0, True, enable_shrink=True)
        assert step(buffer) == 6
        if group.rank() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        for varied in ({}, *VARIED, {}):
            got = step(buffer, **varied)
            assert got == pytest.approx(reached(varied, 2), rel=0.02), varied
        status = torch.zeros(3, dtype=torch.int32)
        buffer.low_latency_query_mask_buffer(status)
        assert status.tolist() == [0, 0, 1]
        return "went on"

    assert in_group(look, 3, dies=2)[:2] == ["went on"] * 2


@pytest.mark.parametrize("varied", VARIED, ids=str)
@on_group(3)
def test_masks_are_the_buffers(group, varied):
    """Masks count before the first step and after it, for old shapes and new ones. After cleaning,
    all ranks are reached, also by shapes that were made without one of them."""
    rank = group.rank()
    buffer = deep_ep.Buffer(group, 0, 0, True, enable_shrink=True)
    status = torch.zeros(3, dtype=torch.int32)
    if rank != 2:
        buffer.low_latency_update_mask_buffer(2, True)
        buffer.low_latency_query_mask_buffer(status)
        assert status.tolist() == [0, 0, 1]
        for each in ({}, varied, {}):
            got = step(buffer, **each)
            assert got == pytest.approx(reached(each, 2), rel=0.02), each
        with pytest.raises(weft.InvalidArgumentError, match="rank_to_mask is -1"):
            buffer.low_latency_update_mask_buffer(-1, True)
        with pytest.raises(weft.InvalidArgumentError, match="rank_to_mask is 3"):
            buffer.low_latency_update_mask_buffer(3, True)
    torch.distributed.barrier()
    buffer.low_latency_clean_mask_buffer()
    buffer.low_latency_query_mask_buffer(status)
    assert status.tolist() == [0, 0, 0]
    for each in (varied, {}, {"max_tokens": 33}):
        assert step(buffer, **each) == pytest.approx(reached(each, 3), rel=0.02)
