# SPDX-License-Identifier: MIT
"""Decode steps against the oracle."""
import threading
import time

import numpy as np
import pytest
import weft
from oracle import Routing, even_placement, random_ids, rng
from ranks import on_ranks, run

TOKENS, TOPK, EXPERTS, HIDDEN = 6, 3, 8, 256


def batch(seed, num_ranks):
    ids = [random_ids(seed, r, (3 * r + seed) % (TOKENS + 1), TOPK, EXPERTS, np.int64)
           for r in range(num_ranks)]
    x = [rng(seed, 50 + r).standard_normal((len(ids[r]), HIDDEN)).astype(np.float32)
         for r in range(num_ranks)]
    weights = [rng(seed, 90 + r).random((len(ids[r]), TOPK)).astype(np.float32)
               for r in range(num_ranks)]
    return Routing(ids, even_placement(EXPERTS, num_ranks)), x, weights


def rows_of_experts(routing, rank):
    """For each local expert the (source, token) of its rows."""
    rows = [[] for _ in routing.experts_of[rank]]
    for s, t in routing.rows_of(rank):
        for local in routing.local_ids(rank, s, t):
            if local >= 0:
                rows[local].append((s, t))
    return rows


def check_rows(comm, routing, x, got):
    for expert, rows in enumerate(rows_of_experts(routing, comm.rank)):
        assert got.num_rows_per_expert[expert] == len(rows)
        assert got.src_tokens[expert, :len(rows)].tolist() == [t for _, t in rows]
        assert got.rows[expert, :len(rows)].tolist() == [x[s][t].tolist() for s, t in rows]
        counts = [sum(s == r for s, _ in rows) for r in range(comm.num_ranks)]
        assert (got.row_ranges[expert] & 0xffffffff).tolist() == counts
    assert got.num_rows_per_rank.tolist() == [
        sum(s == r for s, _ in routing.rows_of(comm.rank)) for r in range(comm.num_ranks)]


def weighted_sums(routing, x, weights, rank):
    """By rank, each summed over its choices in order; then over ranks."""
    total = np.zeros_like(x[rank])
    for token, row in enumerate(x[rank]):
        for other in routing.ranks_of(rank, token):
            part = np.zeros(HIDDEN, np.float32)
            for k, local in enumerate(routing.local_ids(other, rank, token)):
                if local >= 0:
                    part += weights[rank][token, k] * row
            total[token] += part
    return total


def test_an_expert_twice():
    """It has a row for each choice, while there is room."""
    ids = [np.array([[7, 7, 7], [0, 7, 0]]), np.array([[-1, 7, 7]])]
    x = [np.full((len(ids[r]), HIDDEN), r + 1, np.float32) for r in range(2)]
    weights = [np.full(ids[r].shape, 0.25, np.float32) for r in range(2)]
    routing = Routing(ids, even_placement(EXPERTS, 2))

    def steps(comm):
        rank, ep = comm.rank, weft.ExpertParallel(comm, EXPERTS)
        room = weft.LowLatency(ep, HIDDEN, 3, TOPK, np.float32)
        lack = weft.LowLatency(ep, HIDDEN, 2, TOPK, np.float32)
        for _ in range(3):
            got = room.dispatch(x[rank], ids[rank], weights[rank])
            sums = room.combine(got.rows)
            check_rows(comm, routing, x, got)
            assert sums.tolist() == weighted_sums(routing, x, weights, rank).tolist()
        with pytest.raises(weft.CapacityError, match="expert 7 on rank 1 .* 4 rows .* of rank 0"):
            lack.combine(lack.dispatch(x[rank], ids[rank], weights[rank]).rows)

    run(steps, 2)


@pytest.mark.parametrize("phases", ["one", "two"])
@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_by_expert(num_ranks, phases):
    def steps(comm):
        ll = weft.LowLatency(weft.ExpertParallel(comm, EXPERTS), HIDDEN, TOKENS, TOPK, np.float32)
        total = np.zeros(len(ll.ep.experts_of(comm.rank)), np.int32)
        waited = np.zeros((2, num_ranks), np.int64)
        out = None
        for step in range(5):
            routing, x, weights = batch(step, num_ranks)
            send = x[comm.rank], routing.ids[comm.rank], weights[comm.rank]
            if phases == "one":
                got = ll.dispatch(*send, out=out, total_rows_per_expert=total,
                                  waited_ns=waited[0])
            else:
                assert ll.dispatch(*send, phases=weft.LlPhases.SEND) is None
                got = ll.dispatch(phases=weft.LlPhases.RECEIVE, out=out,
                                  total_rows_per_expert=total)
            out = got  # of the next steps, too
            check_rows(comm, routing, x, got)
            before = sum(len(rows_of_experts(batch(s, num_ranks)[0], comm.rank)[0])
                         for s in range(step + 1))
            assert total[0] == before
            if phases == "one":
                sums = ll.combine(got.rows, waited_ns=waited[1])
            else:
                ll.combine(got.rows, phases=weft.LlPhases.SEND)
                sums = ll.combine(phases=weft.LlPhases.RECEIVE)
            assert sums.tobytes() == weighted_sums(routing, x, weights, comm.rank).tobytes()
        assert (waited > 0).all() if phases == "one" else not waited.any()

    run(steps, num_ranks)


@on_ranks(2)
def test_rows_are_finished_during_combine(comm):
    ll = weft.LowLatency(weft.ExpertParallel(comm, EXPERTS), HIDDEN, TOKENS, TOPK, np.float32)
    num_local, capacity, rows_per_word = EXPERTS // 2, 2 * TOKENS, 5
    for step in range(3):
        routing, x, weights = batch(step, 2)
        got = ll.dispatch(x[comm.rank], routing.ids[comm.rank], weights[comm.rank])
        late = np.full_like(got.rows, np.nan)
        words = np.zeros((num_local, -(-capacity // rows_per_word)), np.uint32)

        def work(made=got.rows, late=late, words=words):
            for expert in reversed(range(num_local)):
                for word in range(words.shape[1]):
                    rows = slice(word * rows_per_word, (word + 1) * rows_per_word)
                    late[expert, rows] = made[expert, rows]
                    words[expert, word] = 7

        experts = threading.Timer(0.01, work)
        experts.start()
        sums = ll.combine(late, signals=weft.RowSignals(words, 7, rows_per_word))
        experts.join()
        assert sums.tobytes() == weighted_sums(routing, x, weights, comm.rank).tobytes()
    for signals, message in (
            (weft.RowSignals(words[:, :2].copy(), 7, 5), r"signals.words is uint32\[4, 2\]"),
            (weft.RowSignals(words, 0, 5), "signal_value is 0"),
            (weft.RowSignals(words, -1, 5), "signals.value is -1, allowed are 0"),
            (weft.RowSignals(words[:, :1].copy(), 7, -1), "rows_per_signal is -1")):
        ll.dispatch(x[comm.rank], routing.ids[comm.rank], weights[comm.rank])
        with pytest.raises(weft.InvalidArgumentError, match=message):
            ll.combine(late, signals=signals)
        ll.combine(late)


@on_ranks(2)
def test_experts_begin_during_dispatch(comm):
    ll = weft.LowLatency(weft.ExpertParallel(comm, EXPERTS), HIDDEN, TOKENS, TOPK, np.float32)
    words = np.zeros(EXPERTS // 2, np.uint64)
    for step in range(3):
        routing, x, weights = batch(step, 2)
        out = ll.empty_rows(x[comm.rank])
        made = np.full_like(out.rows, np.nan)

        def work(step=step, out=out, made=made):
            for expert in range(len(words)):
                while words[expert] <= step:
                    time.sleep(0.001)
                made[expert] = out.rows[expert]

        experts = threading.Thread(target=work)
        experts.start()
        got = ll.dispatch(x[comm.rank], routing.ids[comm.rank], weights[comm.rank], out,
                          expert_signals=words)
        experts.join()
        check_rows(comm, routing, x, got)
        assert words.tolist() == [step + 1] * len(words)
        sums = ll.combine(made)
        assert sums.tobytes() == weighted_sums(routing, x, weights, comm.rank).tobytes()
    with pytest.raises(weft.InvalidArgumentError, match=r"expert_signals is uint64\[1\]"):
        ll.dispatch(x[comm.rank], routing.ids[comm.rank], weights[comm.rank],
                    expert_signals=words[:1].copy())
    with pytest.raises(weft.InvalidArgumentError, match="expert_signals is not NULL"):
        ll.dispatch(x[comm.rank], routing.ids[comm.rank], weights[comm.rank],
                    phases=weft.LlPhases.SEND, expert_signals=words)


@on_ranks(2)
def test_two_results_and_release(comm):
    ll = weft.LowLatency(weft.ExpertParallel(comm, EXPERTS), HIDDEN, TOKENS, TOPK, np.float32)
    first, second = batch(4, 2), batch(5, 2)
    rows = []
    for routing, x, weights in (first, second):
        rows.append(ll.dispatch(x[comm.rank], routing.ids[comm.rank], weights[comm.rank]))
    with pytest.raises(weft.InvalidArgumentError):
        ll.dispatch(first[1][comm.rank], first[0].ids[comm.rank])
    check_rows(comm, first[0], first[1], rows[0])
    for _ in range(2):
        sums = ll.combine(rows[0].rows, keep=True)
        assert sums.tobytes() == weighted_sums(*first, comm.rank).tobytes()
    ll.release()
    check_rows(comm, second[0], second[1], rows[1])
    sums = ll.combine(rows[1].rows)
    assert sums.tobytes() == weighted_sums(*second, comm.rank).tobytes()


def test_by_rank():
    def slots(comm):
        ll = weft.LowLatency(weft.ExpertParallel(comm, EXPERTS), HIDDEN, TOKENS, TOPK, np.float32,
                             layout=weft.LlLayout.BY_RANK)
        seen = ll.slots(np.empty(0))
        for step in range(3):
            routing, x, weights = batch(step, 3)
            got = ll.dispatch(x[comm.rank], routing.ids[comm.rank], weights[comm.rank])
            half = seen.half[0]
            answers = np.full((3, TOKENS, HIDDEN), np.nan, np.float32)
            for source in range(3):
                tokens = [t for s, t in routing.rows_of(comm.rank) if s == source]
                assert got.num_rows_per_rank[source] == len(tokens)
                for i, t in enumerate(tokens):
                    assert seen.x[half][source, i].tolist() == x[source][t].tolist()
                    assert seen.src_token[half][source, i, 0] == t
                    local = routing.local_ids(comm.rank, source, t)
                    assert seen.experts[half][source, i].tolist() == local
                    scale = sum(seen.topk_weights[half][source, i])
                    answers[source, i] = seen.x[half][source, i] * scale
            sums = ll.combine(answers)
            np.testing.assert_allclose(sums, weighted_sums(routing, x, weights, comm.rank),
                                       rtol=1e-5, atol=1e-5)

    run(slots, 3)


@pytest.mark.parametrize("scale", list(weft.ScaleKind))
@pytest.mark.parametrize("columns", [False, True])
@on_ranks(2)
def test_quantised(comm, scale, columns):
    """FP8 rows and scales are those that quantise() makes; answers by row, in order of choices."""
    ll = weft.LowLatency(weft.ExpertParallel(comm, EXPERTS), HIDDEN, TOKENS, TOPK, np.float32,
                         narrow=weft.Dtype.FP8_E4M3, group=64, scale=scale,
                         scale_columns=columns, answer=weft.LlAnswer.ROWS)
    routing, x, weights = batch(6, 2)
    got = ll.dispatch(x[comm.rank], routing.ids[comm.rank])
    answers = np.zeros((*got.rows.shape[:2], HIDDEN), np.float32)
    for expert, rows in enumerate(rows_of_experts(routing, comm.rank)):
        for i, (s, t) in enumerate(rows):
            row, scales = weft.rows.quantise(comm, x[s][t:t + 1], group=64, scale=scale)
            assert got.rows[expert, i].tolist() == row[0].tolist()
            mine = got.scales[expert, i]
            if columns and scale == weft.ScaleKind.UE8M0:
                mine = np.ascontiguousarray(mine).view(np.uint8)[:4]
            assert mine.tolist() == scales[0].tolist()
            answers[expert, i] = x[s][t]
    sums = ll.combine(answers, topk_weights=weights[comm.rank])
    expected = np.zeros_like(x[comm.rank])
    for k in range(TOPK):
        is_routed = routing.ids[comm.rank][:, k:k + 1] >= 0
        expected += np.where(is_routed, weights[comm.rank][:, k:k + 1] * x[comm.rank], 0)
    assert sums.tobytes() == expected.tobytes()


@on_ranks(1)
def test_arguments(comm):
    ep = weft.ExpertParallel(comm, EXPERTS)
    ll = weft.LowLatency(ep, HIDDEN, TOKENS, TOPK, np.float32)
    x = np.zeros((2, HIDDEN), np.float32)
    ids = np.zeros((2, TOPK), np.int32)
    for call, message in (
            (lambda: ll.dispatch(x.astype(np.float16), ids), "x is float16"),
            (lambda: ll.dispatch(x, ids[:1]), r"topk_idx is int32\[1, 3\]"),
            (lambda: ll.dispatch(np.zeros((7, HIDDEN), np.float32), ids), "topk_idx"),
            (lambda: ll.combine(x), "x is float32"),
            (lambda: weft.LowLatency(ep, HIDDEN, 0, TOPK, np.float32), "max_tokens")):
        with pytest.raises(weft.InvalidArgumentError, match=message):
            call()


@on_ranks(3)
def test_masks(comm):
    ll = weft.LowLatency(weft.ExpertParallel(comm, EXPERTS), HIDDEN, TOKENS, TOPK, np.float32,
                         on_missing=weft.LlOnMissing.MASK)
    routing, x, weights = batch(2, 3)
    mask, missing = np.array([0, 0, 1], np.int32), np.full(3, 7, np.int32)
    if comm.rank == 2:
        ll.mask(np.array([1, 1, 0], np.int32))
    else:
        ll.mask(mask)
        got = ll.dispatch(x[comm.rank], routing.ids[comm.rank], weights[comm.rank])
        assert got.missing_ranks.tolist() == mask.tolist()
        assert got.num_rows_per_rank[2] == 0
        sums = ll.combine(got.rows, missing_ranks=missing)
        assert missing.tolist() == mask.tolist()
        alone = Routing([np.where(ids >= 16 // 3, -1, ids) for ids in routing.ids],
                        routing.expert_ranks)  # without the experts of rank 2
        assert sums.tobytes() == weighted_sums(alone, x, weights, comm.rank).tobytes()
    comm.host_barrier()
    ll.unmask(np.zeros(3, np.int32), 1)
    assert ll.query_mask(missing).tolist() == [0, 0, 0]
    got = ll.dispatch(x[comm.rank], routing.ids[comm.rank], weights[comm.rank])
    check_rows(comm, routing, x, got)
    sums = ll.combine(got.rows)
    assert sums.tobytes() == weighted_sums(routing, x, weights, comm.rank).tobytes()
