# SPDX-License-Identifier: MIT
"""Layout, notify, dispatch and combine, against the oracle."""
import numpy as np
import pytest
import weft
from oracle import Routing, even_placement, random_ids, rng
from ranks import on_ranks, run
from weft.dispatches import Dispatch
from weft.expert_parallel import ints_at

INT8 = weft.Dtype.INT8
SHAPES = [  # ranks, tokens of each, experts, top-k, hidden, nodes
    (1, [5], 4, 2, 8, 1),
    (2, [7, 4], 16, 4, 12, 1),
    (3, [0, 9, 33], 7, 3, 5, 1),
    (4, [1, 0, 17, 6], 64, 8, 128, 1),
    (4, [9, 3, 9, 12], 12, 6, 32, 2),
]


def batch(shape, rank, dtype=np.int32):
    num_ranks, tokens, experts, topk, hidden, _ = shape
    ids = random_ids(1, rank, tokens[rank], topk, experts, dtype)
    generator = rng(2, rank)
    x = generator.standard_normal((tokens[rank], hidden)).astype(np.float32)
    return ids, x, generator.random((tokens[rank], topk)).astype(np.float32)


def batches(shape, dtype=np.int32):
    return [batch(shape, rank, dtype) for rank in range(shape[0])]


def check_rows(comm, routing, everybody, received):
    order = routing.rows_of(comm.rank)
    assert received.x.tolist() == [everybody[s][1][t].tolist() for s, t in order]
    assert received.src_token.tolist() == [t for _, t in order]
    local = [routing.local_ids(comm.rank, s, t) for s, t in order]
    assert received.topk_idx.tolist() == local
    weights = [[w if i >= 0 else 0 for w, i in zip(everybody[s][2][t].tolist(), ids)]
               for (s, t), ids in zip(order, local)]
    assert received.topk_weights.tolist() == weights


@on_ranks(2)
def test_what_objects_tell(comm):
    ep = weft.ExpertParallel(comm, 7)
    about_ep = f"of <weft.ExpertParallel of 7 experts on {comm}>>"
    assert f"of {ep}>" == about_ep
    handle = ep.handle(2)
    assert repr(handle) == f"<weft.Handle top-2 of 7 experts, no layout yet, {about_ep}"
    handle.layout(np.zeros((3, 2), np.int32))
    assert repr(handle) == f"<weft.Handle top-2 of 7 experts, 3 tokens, {about_ep}"
    arena = weft.Arena(comm, 4096)
    assert repr(arena) == f"<weft.Arena of 4096 bytes on {comm}>"
    ll = weft.LowLatency(ep, 8, 4, 2, np.float32)
    assert repr(ll) == ("<weft.LowLatency of 4 tokens of 8 float32, top-2, by expert, "
                        f"carrier signals, {about_ep}")
    assert repr(weft.Stream(comm)) == "<weft.Stream>"
    handle.destroy()
    assert repr(handle).endswith(", destroyed>")


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shape", SHAPES)
def test_layer(shape, dtype):
    num_ranks, tokens, experts, topk, hidden, nodes = shape
    everybody = batches(shape, dtype)
    routing = Routing([ids for ids, _, _ in everybody], even_placement(experts, num_ranks))

    def layer(comm):
        ids, x, weights = everybody[comm.rank]
        ep = weft.ExpertParallel(comm, experts)
        handle = ep.handle(topk, max_tokens=max(tokens))
        arena = weft.Arena(comm, 1 << 20)
        tables = handle.layout(ids, with_tables=True, tag=7 - comm.rank)
        handle.notify()
        counts = handle.wait_counts()
        order = routing.rows_of(comm.rank)
        assert counts.num_recv_tokens == len(order)
        assert counts.num_recv_per_expert == routing.per_expert(comm.rank)
        assert counts.num_recv_per_rank == [
            sum(s == rank for s, _ in order) for rank in range(num_ranks)]
        assert counts.tags == [7 - rank for rank in range(num_ranks)]
        assert counts.max_recv_tokens == max(len(routing.rows_of(r)) for r in range(num_ranks))
        routes = [routing.ranks_of(comm.rank, t) for t in range(len(ids))]
        assert tables.is_token_in_rank.tolist() == [
            [int(r in ranks) for r in range(num_ranks)] for ranks in routes]
        assert tables.num_tokens_per_rank.tolist() == [
            sum(r in ranks for ranks in routes) for r in range(num_ranks)]
        assert tables.num_tokens_per_expert.tolist() == [
            int((ids == e).sum()) for e in range(experts)]
        assert tables.num_tokens_per_node.sum() >= tables.num_tokens_per_rank.max()

        received = handle.dispatch(x, arena=arena, topk_idx=ids, topk_weights=weights,
                                   with_src_token=True)
        check_rows(comm, routing, everybody, received)

        received.x[:] *= comm.rank + 1  # the experts
        bias = [np.full_like(x, 0.25), x]
        out, weight_sums = handle.combine(received.x, bias=bias,
                                          topk_weights=received.topk_weights)
        in_rank_order = {r: np.array([everybody[s][1][t] * np.float32(r + 1)
                                      for s, t in routing.rows_of(r)]) for r in range(num_ranks)}
        expected = routing.combined(comm.rank, in_rank_order, hidden, bias)
        if nodes == 1:
            assert out.tobytes() == expected.tobytes()
        else:
            np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)
        is_routed = (ids >= 0) & (ids < experts)
        np.testing.assert_array_equal(weight_sums, np.where(is_routed, weights, 0))
        handle.check()

    run(layer, num_ranks, num_nodes=nodes)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("scale", list(weft.ScaleKind))
def test_quantised_on_the_way(scale, nodes):
    """The rows and scales that come are those that quantise() makes of what was sent."""
    shape = (4, [9, 3, 0, 12], 12, 3, 64, nodes)
    num_ranks, tokens, experts, topk, hidden, _ = shape
    everybody = batches(shape)
    routing = Routing([ids for ids, _, _ in everybody], even_placement(experts, num_ranks))

    def layer(comm):
        ids, x, _ = everybody[comm.rank]
        handle = weft.ExpertParallel(comm, experts).handle(topk, max_tokens=max(tokens))
        arena = weft.Arena(comm, 1 << 20)
        handle.layout(ids)
        handle.notify()
        other = np.arange(len(x) * 3, dtype=np.uint8).reshape(-1, 3)
        narrow = weft.Dtype.INT8 if scale == weft.ScaleKind.FP32 else weft.Dtype.FP8_E4M3
        rows, others, scales = handle.dispatch((x, other), arena=arena, narrow=narrow, group=16,
                                               scale=scale).planes
        for i, (s, t) in enumerate(routing.rows_of(comm.rank)):
            row, of_row = weft.rows.quantise(comm, everybody[s][1][t:t + 1], narrow=narrow,
                                             group=16, scale=scale)
            assert rows[i].tobytes() == row[0].tobytes()
            assert scales[i].tobytes() == of_row[0].tobytes()
            assert others[i].tolist() == [3 * t, 3 * t + 1, 3 * t + 2]
        with pytest.raises(weft.InvalidArgumentError, match="not a multiple of 48"):
            handle.dispatch(x, arena=arena, narrow=narrow, group=48)

    run(layer, num_ranks, num_nodes=nodes)


@on_ranks(2)
def test_planes_strides_and_types(comm):
    """Several planes, of any type, whose rows lie apart; outputs that are given; cached."""
    ids = random_ids(3, comm.rank, 10, 2, 8)
    everybody = [random_ids(3, r, 10, 2, 8) for r in range(comm.num_ranks)]
    routing = Routing(everybody, even_placement(8, comm.num_ranks))
    wide = np.arange(10 * 6).reshape(10, 6).astype(np.float64) + 1000 * comm.rank
    narrow = (np.arange(10, dtype=np.uint8) + 100 * comm.rank).reshape(10, 1)
    handle = weft.ExpertParallel(comm, 8).handle(2)
    handle.layout(ids)
    handle.notify()
    capacity = 20
    out = (comm.heap_empty((capacity, 3), np.float64), comm.heap_empty((capacity, 1), np.uint8))
    for _ in range(2):
        for array in out:
            array[:] = 77
        handle.dispatch((wide[:, :3], narrow), out, capacity=capacity)
        order = routing.rows_of(comm.rank)
        assert out[0][:len(order)].tolist() == [
            [1000.0 * s + 6 * t + c for c in range(3)] for s, t in order]
        assert out[1][:len(order), 0].tolist() == [100 * s + t for s, t in order]
        assert (out[0][len(order):] == 77).all()


def test_replicas_and_tables():
    placement = [[0, 1, 2], [1], [2, 0], [0]]

    def layer(comm):
        everybody = [random_ids(4, r, 11, 2, 4) for r in range(3)]
        routing = Routing(everybody, placement)
        ep = weft.ExpertParallel(comm, 4, expert_ranks=placement)
        assert [ep.experts_of(r) for r in range(3)] == routing.experts_of
        handle = ep.handle(2)
        handle.layout(everybody[comm.rank])
        handle.notify()
        assert handle.wait_counts().num_recv_per_expert == routing.per_expert(comm.rank)

        even = weft.ExpertParallel(comm, 6)
        handle = even.handle(3, expert_alignment=4)
        tables = [rng(5, r).random((8, 3)) < 0.5 for r in range(3)]
        selections = [rng(6, r).integers(0, 9, 6).astype(np.int32) for r in range(3)]
        handle.layout_by_table(tables[comm.rank], selections[comm.rank])
        handle.notify()
        counts = handle.wait_counts()
        assert counts.num_recv_per_rank == [int(t[:, comm.rank].sum()) for t in tables]
        mine = [2 * comm.rank, 2 * comm.rank + 1]
        sums = [sum(int(s[e]) for s in selections) for e in mine]
        assert counts.num_recv_per_expert == [(n + 3) // 4 * 4 for n in sums]
        arena = weft.Arena(comm, 1 << 16)
        x = np.arange(8, dtype=np.int32)[:, None] + 100 * comm.rank
        rows = handle.dispatch(x, arena=arena).x
        assert rows[:, 0].tolist() == [100 * s + t for s in range(3) for t in range(8)
                                       if tables[s][t, comm.rank]]

    run(layer, 3)


def test_weights_that_move():
    placements = [None, [[0, 1, 2], [1], [2, 0], [0], [1, 2]], [[2], [2], [0, 1], [1], [0]]]

    def layer(comm):
        eps = [weft.ExpertParallel(comm, 5, expert_ranks=ranks) for ranks in placements]
        weights, moved = ([comm.heap_empty((3, 2, 7), np.float32), comm.heap_empty(3, np.int64)]
                          for _ in range(2))
        serving = eps[0].experts_of(comm.rank)
        weights[0][:len(serving)] = np.array(serving)[:, None, None]
        weights[1][:len(serving)] = np.array(serving) + 1000
        for old, new in zip(eps, eps[1:]):
            old.move_experts(new, weights, moved)
            experts = new.experts_of(comm.rank)
            assert (moved[0][:len(experts)] == np.array(experts)[:, None, None]).all()
            assert moved[1][:len(experts)].tolist() == [1000 + expert for expert in experts]
            weights, moved = moved, weights
        with pytest.raises(weft.InvalidArgumentError, match="moved has 1 arrays, weights has 2"):
            eps[0].move_experts(eps[1], weights, moved[:1])
        with pytest.raises(weft.InvalidArgumentError, match=r"moved\[1\]"):
            eps[0].move_experts(eps[1], weights, [moved[0], np.zeros(3, np.int32)])
        with pytest.raises(weft.InvalidArgumentError, match=r"planes\[0\].dst is"):
            eps[0].move_experts(eps[1], weights[1:], [np.zeros(3, np.int64)])

    run(layer, 3)


@pytest.mark.parametrize("staging_bytes", [2000, 1 << 20])  # in rounds, and at once
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_ordinary_arrays(shape, staging_bytes):
    num_ranks, _, experts, topk, hidden, _ = shape
    everybody = batches(shape)
    routing = Routing([ids for ids, _, _ in everybody], even_placement(experts, num_ranks))
    least = 176 + num_ranks * (4 * hidden + 12 * topk + 4)

    def layer(comm):
        ids, x, weights = everybody[comm.rank]
        ep = weft.ExpertParallel(comm, experts, staging_bytes=max(staging_bytes, least))
        handle = ep.handle(topk)
        handle.layout(ids)
        handle.notify()
        arena = weft.Arena(comm, 1 << 20)
        received = handle.dispatch(x, arena=arena if comm.rank == 1 else None, topk_idx=ids,
                                   topk_weights=weights, with_src_token=True)
        assert len(received.x) == 0 or comm.is_direct(received.x) == (comm.rank == 1)
        check_rows(comm, routing, everybody, received)
        sums, weight_sums = handle.combine(received.x, topk_weights=received.topk_weights)
        same, same_weights = handle.combine(arena.place(received.x),
                                            topk_weights=arena.place(received.topk_weights))
        assert (sums == same).all() and (weight_sums == same_weights).all()
        num_rows = np.array([len(routing.ranks_of(comm.rank, t)) for t in range(len(ids))])
        assert np.allclose(sums, x * num_rows[:, None])

    run(layer, num_ranks)


def test_sums_that_combine_rounds_on_the_way():
    ids = random_ids(9, 0, 7, 2, 4)
    x = rng(9, 1).standard_normal((7, 128)).astype(np.float32)
    num_rows = np.array([len({e // 2 for e in row if e >= 0}) for row in ids])[:, None]

    def layer(comm):
        sums = {}
        for wire in (weft.Dtype.NONE, weft.Dtype.FP32, weft.Dtype.FP16):
            ep = weft.ExpertParallel(comm, 4, combine_wire=wire, staging_bytes=1 << 16)
            handle = ep.handle(2)
            handle.layout(ids)
            handle.notify()
            rows = handle.dispatch(x, topk_idx=ids).x
            sums[wire] = handle.combine(rows)
        assert (sums[weft.Dtype.NONE] == x * num_rows).all()
        assert (sums[weft.Dtype.FP32] == sums[weft.Dtype.NONE]).all()
        assert (sums[weft.Dtype.FP16] == x.astype(np.float16).astype(np.float32) * num_rows).all()

    run(layer, 2, num_nodes=2)


def test_dispatch_made_before_counts():
    """Its inputs are kept, what they hold is read when it is enqueued, and that again and again."""
    shape = (2, [9, 4], 8, 3, 16, 1)
    num_ranks, _, experts, topk, _, _ = shape
    everybody = batches(shape)
    routing = Routing([ids for ids, _, _ in everybody], even_placement(experts, num_ranks))

    def layer(comm):
        ids, x, weights = everybody[comm.rank]
        handle = weft.ExpertParallel(comm, experts).handle(topk)
        arena = weft.Arena(comm, 1 << 20)
        with pytest.raises(weft.InvalidArgumentError, match="layout"):
            Dispatch(handle, (x,))
        handle.layout(ids)
        handle.notify()
        sent = np.zeros_like(x)
        dispatch = Dispatch(handle, (sent,), ids.copy(), weights.copy(), with_src_token=True)
        counts = handle.wait_raw_counts()
        num_rows = counts.num_recv_tokens
        assert ints_at(counts.num_recv_per_expert, counts.num_local_experts) == \
            routing.per_expert(comm.rank)
        sent[:] = x
        for _ in range(2):
            made = [arena.empty((num_rows, *output.row_shape), output.dtype)
                    for output in dispatch.outputs]
            dispatch.enqueue(num_rows, [array.ctypes.data for array in made], None)
            check_rows(comm, routing, everybody, weft.Received((made[0],), *made[1:]))

    run(layer, num_ranks)


@on_ranks(2)
def test_capacity_mode(comm):
    ids = np.zeros((5, 1), np.int64)  # all to rank 0
    handle = weft.ExpertParallel(comm, 2).handle(1)
    handle.layout(ids)
    handle.notify()
    out = comm.heap_empty((6, 4), np.float32)
    x = np.full((5, 4), comm.rank + 1, np.float32)
    stream = weft.Stream(comm)
    received = handle.dispatch(x, out, topk_idx=ids, stream=stream,
                               recv_topk_idx=comm.heap_empty((6, 1), np.int64))
    stream.synchronize()
    if comm.rank == 0:
        assert out[:, 0].tolist() == [1, 1, 1, 1, 1, 2]
        with pytest.raises(weft.CapacityError, match="4"):
            handle.check()
    else:
        assert (received.topk_idx == -1).all()
        handle.check()
    sums = handle.combine(out)
    assert sums[:, 0].tolist() == ([1] * 5 if comm.rank == 0 else [2, 0, 0, 0, 0])


@on_ranks(2)
def test_streams_and_temporaries(comm):
    """Operations on a stream use arrays that nobody else keeps."""
    ep = weft.ExpertParallel(comm, 8)
    arena = weft.Arena(comm, 4 << 20)
    stream = weft.Stream(comm)
    handle = ep.handle(2)
    for step in range(30):
        def ids(step=step):
            return random_ids(step, comm.rank, 50, 2, 8)

        handle.layout(ids(), stream)
        handle.notify(stream)
        x = np.full((50, 64), step + 1, np.float32)
        rows = handle.dispatch(x.copy(), arena=arena, stream=stream).x
        out = handle.combine(rows, stream=stream)
        del rows, x
        np.ones((50, 64), np.float32)  # where the copy may have been
        stream.synchronize()
        num_ranks = [len({int(i) // 4 for i in row if i >= 0}) for row in ids()]
        assert out[:, 5].tolist() == [(step + 1.0) * n for n in num_ranks]


@pytest.mark.parametrize("call, message", [
    (lambda h, x, ids: h.layout(ids.astype(np.float32)), "topk_idx is float32"),
    (lambda h, x, ids: h.layout(ids[:, :1].copy()), r"must be int32 or int64\[4, 2\]"),
    (lambda h, x, ids: h.layout(ids[:, ::-1]), "not contiguous"),
    (lambda h, x, ids: h.layout([[1, 2]]), "type list"),
    (lambda h, x, ids: h.dispatch(x[:3], x), "first dimension must be 4"),
    (lambda h, x, ids: h.dispatch(x[::-1], x), "not lie one after another: its strides are"),
    (lambda h, x, ids: h.dispatch(x), "arena must be"),
    (lambda h, x, ids: h.dispatch(x, x[:, :7].copy()), "dst is float32"),
    (lambda h, x, ids: h.combine(x.astype(np.int32)), "dtype"),
    (lambda h, x, ids: h.combine(x.astype(">f4")), "big-endian"),
    (lambda h, x, ids: h.combine(x, np.empty((3, 8), np.float32)), r"float32\[4, 8\]"),
    (lambda h, x, ids: h.combine(x, bias=[x, x, x]), "at most 2"),
    (lambda h, x, ids: h.dispatch(x.astype(object), x), "dtype is object"),
    (lambda h, x, ids: h.dispatch(x, (x.astype(np.int8), x), narrow=INT8, group=-1), "group is -1"),
    (lambda h, x, ids: h.dispatch(x, (x.astype(np.int8), x), narrow=INT8, group=3),
     "not a multiple"),
    (lambda h, x, ids: h.dispatch((), (x,), narrow=INT8), "x has no planes"),
    (lambda h, x, ids: weft.ExpertParallel(h.ep.comm, 1, expert_ranks=[[2**32]]), "from 42949"),
    (lambda h, x, ids: h.ep.handle(-2**31 - 1), "num_topk is -2147483649, allowed are -21"),
    (lambda h, x, ids: h.ep.sizes([2**64 + 16], 4, 2), "plane_row_bytes is 18446.*allowed are 0.."),
    (lambda h, x, ids: h.ep.experts_of(2**31), r"rank is 2147483648, allowed are .*2147483647$"),
    (lambda h, x, ids: h.device_counts(5, x), "num_local_experts is 5, allowed are 0..4"),
    (lambda h, x, ids: weft.rows.quantise(h.ep.comm, x, narrow=weft.Dtype.BF16), "narrow is"),
    (lambda h, x, ids: weft.rows.quantise(h.ep.comm, x[:, :0], group=0), "hidden is 0"),
])
@on_ranks(1)
def test_arguments(comm, call, message):
    handle = weft.ExpertParallel(comm, 4).handle(2)
    with pytest.raises(weft.InvalidArgumentError, match="layout"):
        handle.dispatch(np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32))
    ids = np.array([[0, 1]] * 4)
    handle.layout(ids)
    handle.notify()
    with pytest.raises(weft.InvalidArgumentError, match=message) as caught:
        call(handle, np.zeros((4, 8), np.float32), ids)
    assert caught.value.code == weft.Result.ERROR_INVALID_ARGUMENT


# ---------------------------------------------------------------- expanded layout

def packed(routing, rank, alignment):
    """(row of dispatch, choice) of each expanded row, or None in gaps."""
    rows = [routing.local_ids(rank, s, t) for s, t in routing.rows_of(rank)]
    blocks = []
    for local in range(len(routing.experts_of[rank])):
        block = [(i, k) for i, ids in enumerate(rows) for k, id_ in enumerate(ids) if id_ == local]
        blocks.append(block + [None] * (-len(block) % alignment))
    return blocks


@pytest.mark.parametrize("alignment", [1, 8])
@pytest.mark.parametrize("order", list(weft.EpOrder))
@pytest.mark.parametrize("shape", SHAPES)
def test_expanded(shape, order, alignment):
    num_ranks, tokens, experts, topk, hidden, nodes = shape
    everybody = batches(shape)
    routing = Routing([ids for ids, _, _ in everybody], even_placement(experts, num_ranks))

    def layer(comm):
        ids, x, weights = everybody[comm.rank]
        ep = weft.ExpertParallel(comm, experts, staging_bytes=1 << 16)
        handle = ep.handle(topk, expert_alignment=alignment, order=order)
        handle.layout(ids)
        handle.notify()
        blocks = packed(routing, comm.rank, alignment)
        rows = [row for block in blocks for row in block]
        counts = handle.wait_counts()
        assert counts.num_expanded_rows == len(rows)
        assert counts.num_recv_per_expert == [len(block) for block in blocks]
        assert counts.num_selections_per_expert == routing.per_expert(comm.rank)
        assert counts.first_row_per_expert == [
            sum(map(len, blocks[:i])) for i in range(len(blocks))]
        there = handle.device_counts(len(blocks), ids)
        assert there.first_row_per_expert.tolist() == counts.first_row_per_expert
        assert there.num_expanded_rows.tolist() == [len(rows)]

        got = handle.dispatch((x, x[:, :1]), topk_idx=ids, topk_weights=weights)
        made = handle.expand(got.planes, topk_idx=got.topk_idx, topk_weights=got.topk_weights,
                             with_src_rows=True, zero_gaps=True)
        choices = np.full(got.topk_idx.shape, -1)
        for i, row in enumerate(rows):
            assert made.src_rows[i] == (row[0] if row else -1)
            assert made.x[i].tolist() == (got.x[row[0]].tolist() if row else [0] * hidden)
            assert made.planes[1][i, 0] == (got.x[row[0], 0] if row else 0)
            assert made.row_weights[i] == (got.topk_weights[row] if row else 0)
            if row:
                choices[row] = i
        assert made.choice_rows.tolist() == choices.tolist()

        again = handle.expand(got.x, choice_rows=made.choice_rows, zero_gaps=True)
        assert again.x.tolist() == made.x.tolist() and again.choice_rows is made.choice_rows
        sums, back = handle.reduce(made.x * made.row_weights[:, None], made.choice_rows,
                                   row_weights=made.row_weights)
        assert back.tolist() == got.topk_weights.tolist()
        out, weights_back = handle.combine(sums, topk_weights=back)
        is_routed = (ids >= 0) & (ids < experts)
        np.testing.assert_array_equal(weights_back, np.where(is_routed, weights, 0))
        np.testing.assert_allclose(
            out, x * np.where(is_routed, weights, 0).sum(1, keepdims=True), rtol=1e-4, atol=1e-5)
        handle.check()

    run(layer, num_ranks, num_nodes=nodes)


@on_ranks(1)
def test_expanded_is_refused(comm):
    ids = np.array([[0, 1], [1, -1]], np.int32)
    handle = weft.ExpertParallel(comm, 2, staging_bytes=1 << 16).handle(2)
    handle.layout(ids)
    handle.notify()
    x = np.ones((2, 3), np.float32)
    with pytest.raises(weft.InvalidArgumentError, match="one of them must be given"):
        handle.expand(x)
    with pytest.raises(weft.InvalidArgumentError, match="only after a weft_ep_expand"):
        handle.expand(x, choice_rows=ids)
    with pytest.raises(weft.InvalidArgumentError, match="first dimension must be 2 rows"):
        handle.expand(x[:1], topk_idx=ids)
    with pytest.raises(weft.InvalidArgumentError, match="out has 2 arrays, planes 1"):
        handle.expand(x, (x, x), topk_idx=ids)
    rows = handle.expand(x, topk_idx=ids, capacity=2).x
    assert rows.tolist() == [[1] * 3] * 2
    with pytest.raises(weft.CapacityError, match="1 choices have none"):
        handle.check()
    with pytest.raises(weft.InvalidArgumentError, match="out_dtype is WEFT_FP16"):
        handle.reduce(rows, ids, out_dtype=np.float16)
    wide = handle.reduce(rows.astype(np.float16), ids - 1, out_dtype=np.float32)
    assert wide.dtype == np.float32 and wide.tolist() == [[1] * 3, [1] * 3]
