# SPDX-License-Identifier: MIT
"""The drop-in for DeepEP: low latency; skipped without PyTorch."""
import pytest
import weft
from oracle import Routing, even_placement
from test_deep_ep import EXPERTS, HIDDEN, batch, check_sums, deep_ep, deep_ep_math
from torch_ranks import in_group, on_group, torch


@pytest.mark.parametrize("answers_are", ["auto", "sums", "rows"])
@pytest.mark.parametrize("how", ["at once", "hook"])
@pytest.mark.parametrize("rows_are", ["bf16", "fp8", "round_scale", "ue8m0"])
def test_low_latency(rows_are, how, answers_are, monkeypatch):
    tokens, num_ranks = 9, 2
    monkeypatch.setenv("WEFT_DEEP_EP_COMBINE", answers_are)

    def step(group):
        rank = group.rank()
        batches = [batch(10 + r, 4 * r + 3) for r in range(num_ranks)]
        routing = Routing([ids.numpy() for _, ids, _ in batches],
                          even_placement(EXPERTS, num_ranks))
        x, ids, weights = batches[rank]
        local = EXPERTS // num_ranks
        buffer = deep_ep.Buffer(group, low_latency_mode=True)
        kind = {"use_fp8": rows_are != "bf16", "round_scale": rows_are in ("round_scale", "ue8m0"),
                "use_ue8m0": rows_are == "ue8m0"}
        stats = torch.zeros(local, dtype=torch.int32)
        waited = torch.zeros(2, num_ranks, dtype=torch.int64)
        when = {"return_recv_hook": how == "hook"}
        for _ in range(3):  # more dispatches than combines
            got, counts, handle, event, hook = buffer.low_latency_dispatch(
                x, ids, tokens, EXPERTS, cumulative_local_expert_recv_stats=stats,
                dispatch_wait_recv_cost_stats=waited[0], **kind, **when)
            assert (hook is not None) == (how == "hook")
            if hook:
                hook()
        assert torch.equal(stats, 3 * counts) and counts.tolist() == routing.per_expert(rank)
        src_info, ranges = handle[0], handle[1]
        assert handle[2:] == (tokens, HIDDEN, EXPERTS)
        if rows_are == "bf16":
            values = got
        else:
            assert got[1].stride()[1] == 1
            values = torch.stack([deep_ep_math.per_token_cast_back(
                got[0][e], got[1][e].contiguous()) for e in range(local)])
        assert values.shape == (local, num_ranks * tokens, HIDDEN)
        for expert in range(local):
            at = [(s, t) for s, t in routing.rows_of(rank)
                  if expert in routing.local_ids(rank, s, t)]
            assert src_info[expert, :len(at)].tolist() == [t for _, t in at]
            for i, (s, t) in enumerate(at):
                assert torch.allclose(values[expert, i], batches[s][0][t], rtol=0.07, atol=0)
            for source in range(num_ranks):
                first, count = ranges[expert][source] >> 32, ranges[expert][source] & 0xffffffff
                assert [s for s, _ in at[first:first + count]] == [source] * count
        for zero_copy in (True, False):
            if zero_copy:
                buffer.get_next_low_latency_combine_buffer(handle)[:] = values
            out = torch.full_like(x, float("nan"))
            same, event, hook = buffer.low_latency_combine(values, ids, weights, handle, out=out,
                                                           zero_copy=zero_copy,
                                                           combine_wait_recv_cost_stats=waited[1],
                                                           **when)
            if hook:
                hook()
            assert same is out
            check_sums(out, x, ids, weights, 1e-5 if rows_are == "bf16" else 9e-4)
        assert (waited > 0).all()

    in_group(step, num_ranks)


@on_group(2)
def test_two_micro_batches(group):
    """More results than weft holds, combined in any order, and some of them twice."""
    buffer = deep_ep.Buffer(group, low_latency_mode=True)
    made = []
    for seed in range(3):
        x, ids, weights = batch(seed + 20 * group.rank(), 5)
        made.append((x, ids, weights, *buffer.low_latency_dispatch(
            x, ids, 8, EXPERTS, use_fp8=False)))
    for i in (1, 2, 0, 2, 1):
        x, ids, weights, rows, _, handle, _, _ = made[i]
        out, _, _ = buffer.low_latency_combine(rows, ids, weights, handle)
        check_sums(out, x, ids, weights)


@pytest.mark.parametrize("second", ["hook", "at once"])
@on_group(2)
def test_hooks_in_any_order(group, second):
    """Each receives what is its own; also if another dispatch comes before those of combines."""
    buffer = deep_ep.Buffer(group, low_latency_mode=True)
    first_expert, num_local = group.rank() * EXPERTS // 2, EXPERTS // 2
    sources = [[batch(i + 20 * r, 5) for r in range(2)] for i in range(2)]
    batches = [source[group.rank()] for source in sources]

    def both(function):
        """Of what function(i, return_recv_hook) gives, after the hooks in the wrong order."""
        done = [function(i, second == "hook" or i == 0) for i in range(2)]
        if function is combine:
            dispatch(0, False)
        for *_, hook in reversed(done):
            if hook:
                hook()
                hook()  # has nothing left to do
        return done

    def dispatch(i, with_hook):
        x, ids, _ = batches[i]
        return buffer.low_latency_dispatch(x, ids, 8, EXPERTS, use_fp8=False,
                                           return_recv_hook=with_hook)

    def combine(i, with_hook):
        _, ids, weights = batches[i]
        return buffer.low_latency_combine(made[i][0], ids, weights, made[i][2],
                                          return_recv_hook=with_hook)

    for _ in range(3):
        made = both(dispatch)
        for (rows, counts, *_), source in zip(made, sources):
            for local in range(num_local):
                came = [x[t] for x, ids, _ in source for t in range(5)
                        if first_expert + local in ids[t]]
                assert counts[local] == len(came)
                assert all(map(torch.equal, rows[local], came))
        for (out, *_), (x, ids, weights) in zip(both(combine), batches):
            check_sums(out, x, ids, weights)


@on_group(2)
def test_what_is_refused_changes_nothing(group):
    buffer = deep_ep.Buffer(group, low_latency_mode=True)
    x, ids, weights = batch(group.rank(), 5)
    for _ in range(3):  # more than there are results
        with pytest.raises(weft.InvalidArgumentError, match="topk_idx is float32"):
            buffer.low_latency_dispatch(x, ids.float(), 8, EXPERTS, use_fp8=False)
        rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, 8, EXPERTS, use_fp8=False)
        with pytest.raises(weft.InvalidArgumentError, match="out is bfloat16"):
            buffer.low_latency_combine(rows, ids, weights, handle, out=x[:2])
        out, _, _ = buffer.low_latency_combine(rows, ids, weights, handle)
        check_sums(out, x, ids, weights)


@on_group(2)
def test_usual_steps_leave_nothing(group):
    """A dispatch and its combine are two operations, so that graphs of them can be replayed."""
    buffer = deep_ep.Buffer(group, low_latency_mode=True)
    x, ids, weights = batch(group.rank(), 5)
    names = []
    enqueue = weft.Communicator.enqueue

    def listen(comm, function, *arguments):
        names.append(function.__name__)
        return enqueue(comm, function, *arguments)

    weft.Communicator.enqueue = listen
    for _ in range(3):
        rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, 8, EXPERTS, use_fp8=False)
        buffer.low_latency_combine(rows, ids, weights, handle)
    assert names == ["weft_ll_dispatch", "weft_ll_combine"] * 3


@on_group(3)
def test_masks(group):
    """Ranks that a caller masks are left out, until all come back."""
    rank = group.rank()
    buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True)
    x, ids, weights = batch(rank, 5)
    sent = buffer.low_latency_dispatch(x, ids, 8, EXPERTS, use_fp8=False)
    buffer.low_latency_combine(sent[0], ids, weights, sent[2])
    for other in range(3):
        if (rank == 2) != (other == 2):
            buffer.low_latency_update_mask_buffer(other, True)
    status = torch.zeros(3, dtype=torch.int32)
    buffer.low_latency_query_mask_buffer(status)
    assert status.tolist() == ([1, 1, 0] if rank == 2 else [0, 0, 1])
    rows, counts, handle, _, _ = buffer.low_latency_dispatch(x, ids, 8, EXPERTS, use_fp8=False)
    out, _, _ = buffer.low_latency_combine(rows, ids, weights, handle)
    owner = torch.div(ids * 3 + 2, EXPERTS, rounding_mode="floor").masked_fill(ids < 0, -1)
    reached = (owner >= 0) & ((owner == 2) == (rank == 2))
    check_sums(out, x, ids.masked_fill(~reached, -1), weights)
    torch.distributed.barrier()
    buffer.low_latency_clean_mask_buffer()
    buffer.low_latency_query_mask_buffer(status)
    assert status.tolist() == [0, 0, 0]
