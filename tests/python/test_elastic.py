# SPDX-License-Identifier: MIT
"""DeepEP's V2 on weft, ElasticBuffer and EPBuffer: rows and sums against plain loops, and the calls
of programs that use it; skipped without PyTorch."""
import copy
import sys

import pytest
import weft
from torch_ranks import in_group, on_group, torch
from weft.drop_in import folder

sys.path.insert(0, folder())
import deep_ep  # noqa: E402
from deep_ep.buffers.elastic import ElasticBuffer, EPHandle  # noqa: E402
from deep_ep.utils import refs  # noqa: E402
from deep_ep.utils.math import align, per_token_cast_to_fp8  # noqa: E402

TOKENS, HIDDEN, TOPK, LOCAL = 11, 256, 5, 3  # TOKENS: the most of a rank; LOCAL: experts of each


def tokens_of(rank):
    return (7 * rank + 11) % 12 % (TOKENS + 1) if rank != 1 else 0


def generator_of(*seed):
    return torch.Generator().manual_seed(hash(seed) % 2**31)


def batch(rank, num_ranks):
    """Rows, ids of which some are -1, and weights."""
    generator, num_tokens = generator_of(rank), tokens_of(rank)
    x = torch.randn(num_tokens, HIDDEN, generator=generator).to(torch.bfloat16)
    scores = torch.rand(num_tokens, max(LOCAL * num_ranks, TOPK), generator=generator)
    ids = scores.topk(TOPK).indices
    ids[(torch.rand(ids.shape, generator=generator) < 0.2) | (ids >= LOCAL * num_ranks)] = -1
    return x, ids, torch.rand(num_tokens, TOPK, generator=generator)


def answer(source, token, choice):
    """What an expert makes of a token: some elements are so large that others are lost beside them,
    unless they meet their negative before. So the order of a sum shows."""
    generator = generator_of(source, token, choice)
    large = torch.randint(-1, 2, (HIDDEN,), generator=generator) * 2.0**28
    return (torch.randn(HIDDEN, generator=generator) + large).to(torch.bfloat16)


class Oracle:
    """What comes to a rank, by loops over everybody's tokens."""

    def __init__(self, rank, num_ranks, alignment):
        self.batches = [batch(r, num_ranks) for r in range(num_ranks)]
        self.rank, self.num_ranks, self.alignment = rank, num_ranks, alignment
        mine = range(LOCAL * rank, LOCAL * (rank + 1))
        self.rows = [(s, t) for s, (_, ids, _) in enumerate(self.batches) for t in range(len(ids))
                     if any(e in mine for e in ids[t].tolist())]
        self.local = [[e - mine.start if e in mine else -1 for e in self.ids(s, t)]
                      for s, t in self.rows]
        self.counts = [sum(ids.count(e) for ids in self.local) for e in range(LOCAL)]
        self.aligned = [align(count, alignment) for count in self.counts]
        self.first = [sum(self.aligned[:e]) for e in range(LOCAL)]

    def ids(self, source, token):
        return self.batches[source][1][token].tolist()

    def places(self):
        """(expanded row, index of row, choice), in order."""
        used, made = list(self.first), []
        for i, ids in enumerate(self.local):
            for k, e in enumerate(ids):
                if e >= 0:
                    made.append((used[e], i, k))
                    used[e] += 1
        return made

    def sums(self, bias, *, rounds):
        """Of this rank's tokens: each rank's answers, rounded if so asked, where the last of them
        is; then in the order of choices."""
        _, ids, _ = self.batches[self.rank]
        out = torch.empty(len(ids), HIDDEN, dtype=torch.bfloat16)
        for t in range(len(ids)):
            owners = [e // LOCAL if e >= 0 else -1 for e in self.ids(self.rank, t)]
            total = bias[t].float() if bias is not None else torch.zeros(HIDDEN)
            for k, owner in enumerate(owners):
                if owner < 0 or owner in owners[k + 1:]:
                    continue
                part = torch.zeros(HIDDEN)
                for j in (j for j, other in enumerate(owners) if other == owner):
                    part = part + answer(self.rank, t, j).float()
                total = total + (part.to(torch.bfloat16).float() if rounds else part)
            out[t] = total.to(torch.bfloat16)
        return out

    def look(self, handle, *, do_cpu_sync):
        """At the counts of a handle."""
        ends = [sum(s <= r for s, _ in self.rows) for r in range(self.num_ranks)]
        assert handle.psum_num_recv_tokens_per_scaleup_rank.tolist() == ends
        wanted = [first + (count if handle.do_expand else aligned) for first, count, aligned in
                  zip(self.first, self.counts, self.aligned)]
        assert handle.psum_num_recv_tokens_per_expert.tolist() == wanted
        if handle.do_expand:
            assert handle.num_unaligned_recv_tokens_per_expert.tolist() == self.counts
        most = TOKENS * self.num_ranks
        sizes = (len(self.rows), sum(self.aligned), self.aligned) if do_cpu_sync else (
            most, align(most * min(TOPK, LOCAL) + (self.alignment - 1) * LOCAL, self.alignment), [])
        assert (handle.num_recv_tokens, handle.num_expanded_tokens,
                handle.num_recv_tokens_per_expert_list) == sizes
        meta = handle.recv_src_metadata
        assert meta.shape == (sizes[0], TOPK + 2) and meta.dtype == torch.int32
        meta = meta[:len(self.rows)].tolist()
        assert [row[0] for row in meta] == [s * TOKENS + t for s, t in self.rows]
        assert [row[1] for row in meta] == [
            s * TOPK + max(k for k, e in enumerate(ids) if e >= 0)
            for (s, _), ids in zip(self.rows, self.local)]
        rows = [[-1] * TOPK for _ in self.rows]
        for place, i, k in self.places() if handle.do_expand else ():
            rows[i][k] = place
        assert [row[2:] for row in meta] == rows


def buffer_of(group, **settings):
    return ElasticBuffer(group, **{"num_max_tokens_per_rank": TOKENS, "hidden": HIDDEN,
                                   "explicitly_destroy": True} | settings)


@pytest.mark.parametrize("do_cpu_sync", [True, False])
@pytest.mark.parametrize("num_ranks, alignment", [(1, 8), (3, 1), (4, 8)])
@on_group()
def test_dispatch_and_combine(group, num_ranks, alignment, do_cpu_sync):
    rank = group.rank()
    oracle = Oracle(rank, num_ranks, alignment)
    x, ids, weights = oracle.batches[rank]
    buffer, when = buffer_of(group), {}
    if do_cpu_sync:
        when = {"previous_event": buffer.capture(), "allocate_on_comm_stream": True,
                "async_with_compute_stream": True}

    def finished(event):
        assert (event.event is not None) == do_cpu_sync
        if do_cpu_sync:
            event.current_stream_wait()

    routing = {"topk_idx": ids, "topk_weights": weights, "num_experts": LOCAL * num_ranks,
               "expert_alignment": alignment, "do_cpu_sync": do_cpu_sync, **when}
    narrow = per_token_cast_to_fp8(x)
    stats = torch.ones(LOCAL, dtype=torch.int32)
    bias = torch.randn(x.shape, generator=generator_of(77)).to(torch.bfloat16)
    sums = [oracle.sums(b, rounds=True) for b in (None, bias)]
    everybody = [b[0] for b in oracle.batches]
    scales = [per_token_cast_to_fp8(b)[1] for b in everybody]
    for given in (x, narrow):
        planes = everybody if given is x else [per_token_cast_to_fp8(b)[0] for b in everybody]
        # Compact.
        got, got_ids, got_weights, handle, event = buffer.dispatch(
            given, cumulative_local_expert_recv_stats=stats, **routing)
        finished(event)
        n = len(oracle.rows)
        oracle.look(handle, do_cpu_sync=do_cpu_sync)
        rows = [torch.stack([p[s][t].view(torch.uint8) for s, t in oracle.rows]) if n else
                torch.empty(0, p[0][:1].nbytes if len(p[0]) else 0, dtype=torch.uint8)
                for p in ((planes, scales) if given is narrow else (planes,))]
        for wanted, plane in zip(rows, got if given is narrow else (got,)):
            assert len(plane) == handle.num_recv_tokens
            assert not n or torch.equal(plane[:n].view(torch.uint8), wanted)
        assert got_ids[:n].tolist() == oracle.local and (got_ids[n:] == -1).all()
        for i, (s, t) in enumerate(oracle.rows):  # all choices, not only those of this rank
            assert torch.equal(got_weights[i], oracle.batches[s][2][t])
        # Expanded.
        packed, no_ids, row_weights, expanded, event = buffer.dispatch(
            given, do_expand=True, do_zero_padding=True, use_tma_aligned_col_major_sf=True,
            **routing)
        finished(event)
        assert no_ids is None and expanded.do_expand
        oracle.look(expanded, do_cpu_sync=do_cpu_sync)
        for wanted, plane in zip(rows, packed if given is narrow else (packed,)):
            assert len(plane) == expanded.num_expanded_tokens
            for place, i, k in oracle.places():
                assert torch.equal(plane[place].contiguous().view(torch.uint8), wanted[i])
            for first, count, size in zip(oracle.first, oracle.counts, oracle.aligned):
                assert not plane[first + count:first + size].float().any()
                assert not row_weights[first + count:first + size].any()
        if given is narrow and len(packed[1]):
            assert packed[1].stride() == (1, align(len(packed[1]), 4))
        for place, i, k in oracle.places():
            assert row_weights[place] == got_weights[i, k]
        # Once more, by the handles.
        again = {key: when[key] for key in when}
        cached, cached_ids, none, same, event = buffer.dispatch(
            given, handle=copy.copy(handle), **again)
        finished(event)
        assert none is None and same.topk_idx is handle.topk_idx
        assert torch.equal(cached_ids, got_ids)
        one, other = (cached[0], got[0]) if given is narrow else (cached, got)
        assert torch.equal(one[:n].view(torch.uint8), other[:n].view(torch.uint8))
        cached, none, cached_weights, same, event = buffer.dispatch(
            given, topk_weights=weights, handle=expanded, do_expand=True, **again)
        finished(event)
        assert same is expanded and none is None
        one, other = (cached[0], packed[0]) if given is narrow else (cached, packed)
        for place, *_ in oracle.places():
            assert torch.equal(one[place].view(torch.uint8), other[place].view(torch.uint8))
            assert cached_weights[place] == row_weights[place]
        # Back.
        reduced = torch.full((handle.num_recv_tokens, HIDDEN), torch.nan, dtype=torch.bfloat16)
        answers = torch.full((expanded.num_expanded_tokens, HIDDEN), torch.nan,
                             dtype=torch.bfloat16)
        reduced[:n] = 0
        total = torch.zeros(n, HIDDEN)
        for place, i, k in oracle.places():
            answers[place] = answer(*oracle.rows[i], k)
        for i, (s, t) in enumerate(oracle.rows):
            for k, e in enumerate(oracle.local[i]):
                total[i] += answer(s, t, k).float() if e >= 0 else 0
        reduced[:n] = total.to(torch.bfloat16)
        for y, back, w in ((reduced, handle, got_weights), (answers, expanded, row_weights)):
            for sum_, b in zip(sums, (None, bias)):
                out, out_weights, event = buffer.combine(y, back, topk_weights=w, bias=b,
                                                         **when)
                finished(event)
                assert torch.equal(out, sum_)
                assert torch.equal(out_weights, weights.masked_fill(ids < 0, 0))
            two, none, event = buffer.combine(y, back, bias=(bias, bias), **when)
            finished(event)
            assert none is None and two.shape == x.shape
    assert stats.tolist() == [1 + 2 * count for count in oracle.counts]
    buffer.destroy()
    assert buffer.runtime is None


@on_group(3)
def test_one_rounding(group):
    """Without allow_multiple_reduction expanded rows are rounded once, all together."""
    rank, num_ranks = group.rank(), group.size()
    oracle = Oracle(rank, num_ranks, 1)
    x, ids, weights = oracle.batches[rank]
    buffer = buffer_of(group, allow_multiple_reduction=False)
    rows, _, row_weights, handle, _ = buffer.dispatch(
        x, ids, weights, num_experts=LOCAL * num_ranks, do_expand=True)
    answers = torch.zeros_like(rows)
    for place, i, k in oracle.places():
        answers[place] = answer(*oracle.rows[i], k)
    out, *_ = buffer.combine(answers, handle)
    assert torch.equal(out, oracle.sums(None, rounds=False))
    with pytest.raises(AssertionError, match="allow_multiple_reduction"):
        buffer.combine(answers, handle, topk_weights=row_weights)
    buffer.destroy()


@on_group(4, WEFT_NODES="2")
def test_nodes_and_references(group):
    """Two nodes in hybrid mode, against what deep_ep.utils gives to test programs."""
    rank, num_experts = group.rank(), 4 * LOCAL
    x, ids, weights = batch(rank, 4)
    buffer = buffer_of(group)
    received, local, recv_weights, src, per_rank = refs.dispatch(
        (x, weights), ids, weights, TOKENS, num_experts)
    rows, got_ids, got_weights, handle, _ = buffer.dispatch(
        x, topk_idx=ids, topk_weights=weights, num_experts=num_experts)
    assert torch.equal(rows, received[0]) and torch.equal(received[1], recv_weights)
    assert torch.equal(got_ids, local) and torch.equal(got_weights, recv_weights)
    assert torch.equal(handle.recv_src_metadata[:, 0], src)
    counts = per_rank.view(2, 2).sum(0)  # of ranks with the same place in their nodes
    assert handle.psum_num_recv_tokens_per_scaleup_rank.tolist() == counts.cumsum(0).tolist()
    answers = torch.stack([torch.stack([answer(int(i) // TOKENS, int(i) % TOKENS, k)
                                        for k in range(TOPK)]) for i in src])
    y = refs.ordered_accumulate(answers.masked_fill((local < 0).unsqueeze(2), 0))
    mine = torch.empty(len(x), TOPK, HIDDEN, dtype=torch.bfloat16)
    for t in range(len(x)):
        for k in range(TOPK):
            mine[t, k] = answer(rank, t, k) if ids[t, k] >= 0 else 0
    out, *_ = buffer.combine(y, handle, bias=x)
    assert torch.equal(out, refs.combine(mine, ids, 2, 2, num_experts, x, True, True))
    flat = refs.combine(mine, ids, 1, 4, num_experts, x, True, False)
    assert not len(x) or not torch.equal(out, flat)  # so the order of nodes shows
    buffer.destroy()


def calls_of_vllm(group, x, ids, weights, num_experts):
    buffer = deep_ep.ElasticBuffer(
        group=group, num_max_tokens_per_rank=16, hidden=HIDDEN, num_topk=TOPK,
        use_fp8_dispatch=True, allow_hybrid_mode=True, prefer_overlap_with_compute=True,
        allow_multiple_reduction=True, explicitly_destroy=True)
    assert buffer.get_theoretical_num_sms(num_experts=num_experts, num_topk=TOPK) >= 4
    for is_prefill in (True, False):
        rows, local, w, handle, event = buffer.dispatch(
            x=per_token_cast_to_fp8(x), topk_idx=ids, topk_weights=weights,
            num_experts=num_experts, num_max_tokens_per_rank=16, do_expand=is_prefill,
            do_cpu_sync=is_prefill, async_with_compute_stream=False)
        assert event.event is None and (local is None) == is_prefill
        if is_prefill:
            assert sum(handle.num_recv_tokens_per_expert_list) == len(rows[0])
        n = int(handle.psum_num_recv_tokens_per_scaleup_rank[-1])
        assert n <= handle.num_recv_tokens
        y = torch.zeros(rows[0].shape, dtype=torch.bfloat16)
        out, none, event = buffer.combine(
            x=y, handle=handle, topk_weights=None, async_with_compute_stream=True,
            allocate_on_comm_stream=True)
        event.current_stream_wait()
        assert none is None and out.shape == x.shape and not out.any()
    buffer.destroy()


def calls_of_sglang(group, x, ids, weights, num_experts):
    buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=16, hidden=HIDDEN, sl_idx=0)
    assert buffer.num_bytes % 2**21 == 0
    for is_decoding in (True, False):
        (rows, scales), _, w, handle, _ = buffer.dispatch(
            per_token_cast_to_fp8(x), topk_idx=ids, topk_weights=weights, num_experts=num_experts,
            expert_alignment=128, num_sms=8, use_tma_aligned_col_major_sf=True,
            do_cpu_sync=not is_decoding, do_expand=True)
        ends = handle.psum_num_recv_tokens_per_expert.tolist()
        assert [end - align(last, 128) for last, end in zip([0, *ends], ends)] == \
            handle.num_unaligned_recv_tokens_per_expert.tolist()
        assert scales.shape == (len(rows), HIDDEN // 128) and w.shape == (len(rows),)


def calls_of_torchtitan(group, x, ids, weights, num_experts):
    settings = {"hidden": HIDDEN, "num_topk": TOPK, "use_fp8_dispatch": False}
    num_bytes = deep_ep.ElasticBuffer.get_buffer_size_hint(group, 16, **settings)
    buffer = deep_ep.ElasticBuffer(group, num_bytes=num_bytes, num_max_tokens_per_rank=16,
                                   deterministic=True, explicitly_destroy=True, **settings)
    assert buffer.num_bytes == num_bytes
    rows, _, _, handle, _ = buffer.dispatch(x, topk_idx=ids, topk_weights=weights,
                                            num_experts=num_experts)
    again, *_, same, _ = buffer.dispatch(x, handle=handle, num_sms=handle.num_sms)
    assert same is handle and torch.equal(rows, again)
    buffer.destroy()


def calls_of_deepspeed(group, x, ids, weights, num_experts):
    buffer = deep_ep.ElasticBuffer(group, num_max_tokens_per_rank=16, hidden=HIDDEN,
                                   num_allocated_qps=16)
    assert ids.dtype == deep_ep.topk_idx_t
    rows, _, w, handle, _ = buffer.dispatch(
        x, topk_idx=ids, topk_weights=weights, num_experts=num_experts, do_expand=True,
        expert_alignment=1, num_sms=4)
    assert torch.equal(handle.topk_idx, ids) and handle.topk_idx is not ids
    leaf = rows.detach().requires_grad_()
    out, *_ = buffer.combine(leaf * 1, handle)
    grad, *_ = buffer.dispatch(torch.ones_like(out), handle=handle, do_expand=handle.do_expand)
    assert not out.requires_grad and (grad == 1).all() and grad.shape == rows.shape


def calls_of_2_5(group, x, ids, weights, num_experts):
    buffer = deep_ep.EPBuffer(group, num_max_tokens_per_rank=16, hidden=HIDDEN, num_topk=TOPK,
                              lb_allocation_plan_or_num_bytes=0, explicitly_destroy=True)
    event = buffer.dispatch(x, ids, weights, num_experts=num_experts, defer_epilogue=True)
    rows, local, w, handle = event.current_stream_wait()
    assert isinstance(handle, EPHandle) and handle.topk_idx is ids
    out, out_weights = buffer.combine(rows, handle, w, defer_epilogue=True).current_stream_wait()
    assert torch.equal(out_weights, weights.masked_fill(ids < 0, 0)) and out.shape == x.shape
    assert len(buffer.combine(rows, handle)) == 3
    buffer.barrier(wait_comm_stream=False, with_cpu_sync=True)
    buffer.print_memory_usage()
    assert buffer.num_lb_bytes == 0 and buffer.runtime.lb_storage.numel() == 0
    buffer.destroy()


@pytest.mark.parametrize("calls", [calls_of_vllm, calls_of_sglang, calls_of_torchtitan,
                                   calls_of_deepspeed, calls_of_2_5])
def test_calls_of(calls):
    """Each program's, with its arguments."""
    in_group(lambda group: calls(group, *batch(group.rank(), 2), 2 * LOCAL), 2)


@pytest.mark.parametrize("routing", ["map", "indices"])
@on_group(3)
def test_hybrid(group, routing):
    """hybrid-ep: routing by a map or by indices."""
    rank, num_ranks = group.rank(), group.size()
    oracle = Oracle(rank, num_ranks, 4)
    x, ids, weights = oracle.batches[rank]
    num_experts = LOCAL * num_ranks
    buffer = deep_ep.HybridEPBuffer(
        group, HIDDEN, TOKENS, LOCAL, load_cached_kernels=True, use_shared_buffer=True,
        enable_custom_allgather=True)
    assert buffer.configurer.buffer_config.num_of_experts_per_rank == LOCAL
    is_chosen, probs = deep_ep.hybrid_ep_buffer.indices_to_map(ids, weights, len(ids),
                                                               num_experts)
    assert is_chosen.dtype == torch.bool and torch.equal(is_chosen, probs > 0)
    given = {"routing_map": is_chosen, "probs": probs} if routing == "map" else \
        {"topk_idx": ids, "topk_weights": weights}
    scales = torch.arange(len(x) * 2).view(-1, 2).float() + 1000 * rank
    rows, w, sf, counts, handle = buffer.dispatch_with_permute(
        hidden=x, scaling_factor=scales, pad_multiple=4, **given)
    assert counts.tolist() == oracle.aligned and len(rows) == sum(oracle.aligned)
    for first, count, size, e in zip(oracle.first, oracle.counts, oracle.aligned, range(LOCAL)):
        came = [st for st, local in zip(oracle.rows, oracle.local) if e in local]
        for place, (s, t) in enumerate(came, first):
            s_x, s_ids, s_weights = oracle.batches[s]
            k = s_ids[t].tolist().index(LOCAL * rank + e)
            assert torch.equal(rows[place], s_x[t]) and w[place] == s_weights[t, k]
            assert sf[place].tolist() == [1000 * s + 2 * t, 1000 * s + 2 * t + 1]
        assert not rows[first + count:first + size].any()
    out, out_probs = buffer.combine_with_unpermute(hidden=rows, probs=w, handle=handle,
                                                   pad_multiple=4)
    assert torch.equal(out_probs, probs)
    num_chosen = is_chosen.sum(1, keepdim=True)
    assert torch.allclose(out.float(), x.float() * num_chosen, rtol=2e-2)
    again, w_again, *_ = buffer.dispatch_with_permute(hidden=x, scaling_factor=scales,
                                                      handle=handle, **given)
    assert torch.equal(again, rows) and torch.equal(w_again, w)
    # Without waiting for the counts.
    most = sum(oracle.aligned) + 4
    for limit in ({"num_permuted_tokens": most}, {"non_blocking": True}):
        more, _, _, counts, other = buffer.dispatch_with_permute(
            hidden=x, pad_multiple=4, **limit, **given)
        assert counts.tolist() == oracle.aligned
        assert len(more) == most if "non_blocking" not in limit else len(more) > most
        assert torch.equal(more[:sum(oracle.aligned)], rows)
        same, none = buffer.combine_with_unpermute(hidden=more, handle=other)
        assert none is None and torch.equal(same, out)
    with pytest.raises(weft.InvalidArgumentError, match="topk_idx, or a routing_map of bool"):
        buffer.dispatch_with_permute(hidden=x, routing_map=probs)


@on_group(2)
def test_refusals(group):
    """Wrong arguments are errors before anything is sent, so that ranks stay together."""
    x, ids, weights = batch(0, 2)
    buffer, num_experts = buffer_of(group), 2 * LOCAL
    good = {"topk_idx": ids, "topk_weights": weights, "num_experts": num_experts}
    *_, handle, _ = buffer.dispatch(x, **good)
    for wrong, match in (
            ({"topk_idx": ids[0]}, r"topk_idx is torch.int64\[5\]; .*top-k\] of 1..32"),
            ({"topk_idx": None}, "topk_idx is a NoneType"),
            ({"num_experts": None}, "num_experts"), ({"num_experts": 7}, "7; .*multiple of"),
            ({"num_max_tokens_per_rank": 3}, "11 tokens, num_max_tokens_per_rank is 3"),
            ({"expert_alignment": 0}, "expert_alignment is 0; it must be 1 or more"),
            ({"topk_weights": weights.double()}, "topk_weights"),
            ({"topk_weights": weights[:, 1:]}, "topk_weights"),
            ({"cumulative_local_expert_recv_stats": torch.zeros(LOCAL)}, "recv_stats"),
            ({"do_zero_padding": True}, "do_zero_padding")):
        with pytest.raises((weft.InvalidArgumentError, TypeError), match=match):
            buffer.dispatch(x, **good | wrong)
    for wrong, match in (({"num_experts": 9}, "num_experts is 9, and 6 of the handle"),
                         ({"do_expand": True}, "without do_expand"),
                         ({"handle": 3}, "handle is a int; it must be what dispatch")):
        with pytest.raises(weft.InvalidArgumentError, match=match):
            buffer.dispatch(x, **{"handle": handle} | wrong)
    with pytest.raises(weft.InvalidArgumentError, match="room for .* bytes a token"):
        buffer.dispatch(torch.zeros(len(x), 4 * HIDDEN, dtype=torch.bfloat16), handle=handle)
    for wrong in ({"topk_idx": ids}, {"do_cpu_sync": True}, {"previous_event": 1}):
        with pytest.raises(AssertionError):
            buffer.dispatch(x, handle=handle, **wrong)
    with pytest.raises(AssertionError, match="rows"):
        buffer.combine(torch.zeros(1, HIDDEN, dtype=torch.bfloat16), handle)
    with pytest.raises(weft.InvalidArgumentError, match=r"agrs_set_config\(\) must come"):
        buffer.create_agrs_session()
    mine = x if group.rank() else x.float()
    with pytest.raises(weft.MismatchError, match="disagree on x"):
        buffer.dispatch(mine, **good)
    assert buffer.dispatch(x, handle=handle)[0].shape[1] == HIDDEN
    buffer.destroy()
    with pytest.raises(weft.InvalidArgumentError, match="ElasticBuffer that was destroyed"):
        buffer.dispatch(x, handle=handle)
    buffer.destroy()
