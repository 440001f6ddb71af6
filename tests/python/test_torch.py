# SPDX-License-Identifier: MIT
"""Tensors in and out, process groups, gradients of a MoE layer; skipped without PyTorch."""
import pytest
import weft
from ranks import on_ranks, run, train_example
from torch_ranks import in_group, torch

import torch.distributed.tensor  # for torch.testing: once, before ranks are forked
import weft.torch

EXPERTS, TOPK, HIDDEN, TOKENS = 8, 2, 16, 12


def with_comm(function, num_ranks):
    """function(a communicator of a group of gloo) on each rank."""
    def be_rank(_):
        mine = weft.torch.communicator(machine=weft.Machine.CPU, timeout_ms=20000)
        assert (mine.rank, mine.num_ranks) == (torch.distributed.get_rank(), num_ranks)
        result = function(mine)
        mine.destroy()
        return result

    return in_group(be_rank, num_ranks)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@on_ranks(2)
def test_tensors(comm, dtype):
    coll = weft.Collectives(comm)
    x = torch.arange(40).reshape(4, 10).to(dtype) + comm.rank
    total = coll.all_reduce(x)
    assert total.dtype == dtype
    assert torch.equal(total, (2 * torch.arange(40).reshape(4, 10) + 1).to(dtype))
    assert torch.equal(coll.all_gather(x)[1], torch.arange(40).reshape(4, 10).to(dtype) + 1)
    shared = comm.heap_empty((3, 5), dtype)
    assert shared.dtype == dtype and shared.shape == (3, 5)
    shared.fill_(comm.rank)
    comm.host_barrier()
    assert (comm.on_rank(shared, 1 - comm.rank) == 1 - comm.rank).all()
    comm.host_barrier()

    handle = weft.ExpertParallel(comm, 4).handle(1)
    arena = weft.Arena(comm, 1 << 20)
    handle.layout(torch.tensor([[0], [1], [2], [3]]))
    handle.notify()
    rows = handle.dispatch((x, x[:, 3:5]), arena=arena).planes
    mine = slice(2 * comm.rank, 2 * comm.rank + 2)
    everybody = coll.all_gather(x)
    assert torch.equal(rows[0], everybody[:, mine].reshape(4, 10))
    assert torch.equal(rows[1], rows[0][:, 3:5])
    assert torch.equal(handle.combine(rows[0], bias=[x]), x + x)

    bits, scales = weft.rows.quantise(comm, x, group=10)
    assert bits.dtype == torch.float8_e4m3fn
    torch.testing.assert_close((bits.float() * scales).to(dtype), x, rtol=0.07, atol=0)

    ll = weft.LowLatency(weft.ExpertParallel(comm, 4), 10, 4, 1, dtype)
    got = ll.dispatch(x, torch.tensor([[0], [1], [2], [3]]))
    assert torch.equal(got.rows[0][:2], everybody[:, 2 * comm.rank])
    assert torch.equal(ll.combine(got.rows), x)


@on_ranks(2)
def test_pool(comm):
    """Tensors of a pool lie in the heap while there is room, and keep it until they are dropped."""

    pool = weft.torch.Pool(comm, 1 << 21)
    rows, ids = pool.empty(((1000, 512), torch.bfloat16), ((1000, 3), torch.int64))
    assert rows.shape == (1000, 512) and rows.dtype == torch.bfloat16
    assert comm.is_direct(rows) and comm.is_direct(ids) and ids.is_contiguous()
    more, = pool.empty(((1000, 600), torch.bfloat16))
    assert not comm.is_direct(more) and more.shape == (1000, 600)
    first = rows.data_ptr()
    del rows
    pool.empty(((5,), torch.uint8))  # it is not asked at once
    again, = pool.empty(((1000, 500), torch.bfloat16))
    assert comm.is_direct(again) and again.data_ptr() == first
    pool.grow(1 << 21)  # it has that
    assert not comm.is_direct(pool.empty(((1000, 600), torch.bfloat16))[0])
    pool.grow(1 << 22)
    grown, = pool.empty(((1 << 21,), torch.uint8))
    assert comm.is_direct(grown) and pool.mem_pool is None
    again.fill_(3)
    pool.destroy()
    assert not comm.is_direct(pool.empty(((5,), torch.float32))[0])
    native = comm._native
    comm.destroy()
    del pool, ids, grown
    assert (again == 3).all() and native.address is not None
    del again
    assert native.address is None


@pytest.mark.parametrize("layout", list(weft.LlLayout))
@pytest.mark.parametrize("columns", [False, True])
def test_outputs_of_low_latency(layout, columns):
    """What is allocated quickly gets the same as other tensors do."""
    def dispatch(comm):
        by_expert = layout == weft.LlLayout.BY_EXPERT
        ll, other = (weft.LowLatency(
            weft.ExpertParallel(comm, EXPERTS), 128, TOKENS, TOPK, torch.bfloat16, layout=layout,
            narrow=weft.Dtype.FP8_E4M3, group=group, scale_columns=columns) for group in (64, 128))
        x = torch.arange(5 * 128).reshape(5, 128).bfloat16()
        ids = torch.arange(5 * TOPK).reshape(5, TOPK) % EXPERTS
        rows, out = ll.empty_rows(x), ll.output_maker()()
        fewer = ll.output_maker(("num_rows_per_rank",))()
        for given in (rows, out, fewer):
            if by_expert:
                given.rows.view(torch.uint8).zero_()
                given.scales.zero_()
            assert ll.dispatch(x, ids, out=given) is given
            ll.release()
        for made in (out, fewer):
            assert (made.rows is not None) == by_expert
            if by_expert:
                assert torch.equal(made.rows.view(torch.uint8), rows.rows.view(torch.uint8))
                assert torch.equal(made.scales, rows.scales)
                assert made.scales.stride() == rows.scales.stride()
        names = ["num_rows_per_expert", "row_ranges"] if by_expert else []
        for name in [*names, "num_rows_per_rank"]:
            array = out.make(name)
            assert torch.equal(array, getattr(rows, name)) and array.dtype == getattr(
                rows, name).dtype
        with pytest.raises(KeyError):
            fewer.make("num_rows_per_rank")
        for refused in (other.output_maker()(), other.empty_rows(x)):
            if by_expert:
                with pytest.raises(weft.InvalidArgumentError, match="out"):
                    ll.dispatch(x, ids, out=refused)

    run(dispatch, 2)


@on_ranks(2)
def test_arguments_of_low_latency_that_change(comm):
    """What was right last is known; what is like it but for one thing, or was changed, is not."""
    ll = weft.LowLatency(weft.ExpertParallel(comm, EXPERTS), 128, TOKENS, TOPK, torch.bfloat16,
                         answer=weft.LlAnswer.SUMS_WEIGHED_LATE)
    x = torch.ones(4, 128, dtype=torch.bfloat16)
    ids = torch.arange(4 * TOPK).reshape(4, TOPK) % EXPERTS
    weights, out = torch.ones(4, TOPK), torch.empty_like(x)
    total = torch.zeros(EXPERTS // 2, dtype=torch.int32)
    answers = torch.ones(ll.dispatch(x, ids).rows.shape, dtype=torch.bfloat16)
    ll.combine(answers, out, topk_weights=weights)

    def altered(tensor):
        """Each in turn in place of the right one."""
        resized = tensor.clone()
        yield resized.resize_(2, *tensor.shape[1:])
        yield tensor[:-1]
        yield tensor.double()
        yield tensor.unsqueeze(0)
        yield tensor.repeat_interleave(2, -1)[..., ::2]
        yield torch._neg_view(tensor)
        yield tensor.to("meta")

    def check_all(function, given, right, wants):
        for _ in range(3):
            function(**given)
            right()
            for name in wants:
                for wrong in altered(given[name]):
                    with pytest.raises(weft.InvalidArgumentError):
                        function(**(given | {name: wrong}))

    check_all(ll.dispatch, {"x": x, "topk_idx": ids, "total_rows_per_expert": total},
              ll.release, ["x", "topk_idx"])
    for wrong in altered(total):
        with pytest.raises(weft.InvalidArgumentError):
            ll.dispatch(x, ids, total_rows_per_expert=wrong)
    ll.dispatch(x, ids)
    sums = {"x": answers, "topk_weights": weights, "out": out}
    check_all(ll.combine, sums, lambda: ll.dispatch(x, ids), ["x", "topk_weights"])
    for wrong in altered(out):
        with pytest.raises(weft.InvalidArgumentError):
            ll.combine(answers, wrong, topk_weights=weights)
    ll.combine(**sums)
    ll.dispatch(x[:3], ids[:3])  # of which there are fewer
    with pytest.raises(weft.InvalidArgumentError):
        ll.combine(**sums)
    assert ll.combine(answers, topk_weights=weights[:3]).shape == (3, 128)


@on_ranks(1)
def test_arguments(comm):
    coll = weft.Collectives(comm)
    with pytest.raises(weft.InvalidArgumentError, match="complex64"):
        coll.all_reduce(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(weft.InvalidArgumentError, match="not contiguous"):
        coll.all_reduce(torch.zeros(3, 4).T)
    negative = torch.ones(1, dtype=torch.complex64).conj().imag  # lies in memory without sign
    with pytest.raises(weft.InvalidArgumentError, match="send is a negative view"):
        coll.all_reduce(negative)
    with pytest.raises(weft.InvalidArgumentError, match="send is on device meta"):
        coll.all_reduce(torch.ones(3, device="meta"))
    tokens = weft.torch.TokenDispatcher(comm, EXPERTS, 1, arena_bytes=1 << 16)
    got = tokens.dispatch(torch.ones(3, HIDDEN), torch.zeros(3, 1, dtype=torch.int32),
                          torch.ones(3, 1))
    for rows in (got.rows[:2], got.rows[0], torch.ones(4, HIDDEN)):
        with pytest.raises(weft.InvalidArgumentError, match=r"it must be \[3, hidden\]"):
            tokens.combine(rows, got.routing)


class MoeLayer(torch.nn.Module):
    """Its experts are functions of all parameters, so that every rank can be compared."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.gate = torch.nn.Parameter(torch.randn(HIDDEN, EXPERTS, generator=generator))
        self.experts = torch.nn.Parameter(
            torch.randn(EXPERTS, HIDDEN, HIDDEN, generator=generator) / 4)

    def route(self, x):
        return (x @ self.gate).softmax(-1).topk(TOPK)

    def alone(self, x):
        weights, idx = self.route(x)
        each = torch.tanh(torch.einsum("nh,ehd->ned", x, self.experts))
        return (each.gather(1, idx[..., None].expand(-1, -1, HIDDEN)) * weights[..., None]).sum(1)

    def together(self, x, dispatcher, local_experts):
        weights, idx = self.route(x)
        got = dispatcher.dispatch(x, idx, weights)
        y = torch.zeros_like(got.rows)
        for local, expert in enumerate(local_experts):
            row, k = (got.topk_idx == local).nonzero(as_tuple=True)
            answer = torch.tanh(got.rows[row] @ self.experts[expert])
            y = y.index_add(0, row, answer * got.topk_weights[row, k, None])
        return dispatcher.combine(y, got.routing)


def tokens(rank):
    count = TOKENS if rank != 1 else 0  # a rank without tokens is an ordinary rank
    return torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(100 + rank))


@pytest.mark.parametrize(("num_ranks", "memory"), [
    (1, {"arena_bytes": 1 << 20}), (3, {"arena_bytes": 1 << 20}), (3, {"arena_bytes": None}),
    (3, {"arena_bytes": 0}), (3, {"arena_bytes": 0, "staging_bytes": 1000})])
def test_gradients(num_ranks, memory):
    """Two layers, forward and backward, for several steps, equal one process with all experts."""
    def train(comm):
        dispatcher = weft.torch.TokenDispatcher(comm, EXPERTS, TOPK, **memory)
        mine = dispatcher.ep.experts_of(comm.rank)
        layers, alone = [MoeLayer(), MoeLayer()], [MoeLayer(), MoeLayer()]
        for _ in range(3):
            x = tokens(comm.rank).requires_grad_()
            out = x
            for layer in layers:
                out = out + layer.together(out, dispatcher, mine)
            (out * out).sum().backward()
            for layer in layers:
                for parameter in layer.parameters():
                    torch.distributed.all_reduce(parameter.grad)
            everybody = [tokens(r).requires_grad_() for r in range(num_ranks)]
            for source in everybody:
                expected = source
                for layer in alone:
                    expected = expected + layer.alone(expected)
                (expected * expected).sum().backward()
                if source is everybody[comm.rank]:
                    torch.testing.assert_close(out, expected)
            torch.testing.assert_close(x.grad, everybody[comm.rank].grad, rtol=1e-4, atol=1e-4)
            for layer, reference in zip(layers, alone):
                for p, q in zip(layer.parameters(), reference.parameters()):
                    torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-3)
                    with torch.no_grad():
                        for parameter in (p, q):
                            parameter -= 1e-3 * q.grad
                            parameter.grad = None
        assert len(dispatcher._free_handles) <= 2  # which are used again
        del out, x
        return len(dispatcher._free_handles)

    assert with_comm(train, num_ranks) == [2] * num_ranks


def test_experts_that_move():
    """Layers answer alike before and after, from the weights that have come."""
    def train(comm):
        dispatcher = weft.torch.TokenDispatcher(comm, EXPERTS, TOPK, None, max_tokens=TOKENS)
        layer, x = MoeLayer(), tokens(comm.rank)
        alone = layer.alone(x)
        weights, moved = (comm.heap_empty((EXPERTS, HIDDEN, HIDDEN), torch.float32)
                          for _ in range(2))
        mine = dispatcher.ep.experts_of(comm.rank)
        weights[:len(mine)] = layer.experts.detach()[mine]
        for placement in ([[e % 3, (e + 1) % 3] for e in range(EXPERTS)], [[2]] * EXPERTS):
            old = dispatcher.dispatch(x, *reversed(layer.route(x)))
            dispatcher.move_experts(placement, [weights], [moved])
            weights, moved = moved, weights
            with pytest.raises(weft.InvalidArgumentError, match="destroyed"):
                dispatcher.combine(old.rows, old.routing)
            del old  # its handle is not used again
            layer.experts = torch.nn.Parameter(weights.clone())
            mine = dispatcher.ep.experts_of(comm.rank)
            out = layer.together(x, dispatcher, range(len(mine)))
            torch.testing.assert_close(out, alone)
        return len(mine)

    assert with_comm(train, 3) == [0, 0, EXPERTS]


@pytest.mark.parametrize("narrow", [weft.Dtype.FP8_E4M3, weft.Dtype.INT8])
def test_narrow_rows(narrow):
    """Rows come as they are after weft.rows, and memory grows with the batches."""
    def dispatch(comm):
        tokens = weft.torch.TokenDispatcher(comm, EXPERTS, TOPK, None, narrow=narrow)
        for num_tokens in (2, 0, 700):
            x = torch.randn(num_tokens, 256, dtype=torch.bfloat16, requires_grad=True)
            ids = torch.arange(EXPERTS)[:TOPK].expand(num_tokens, TOPK)  # all of rank 0
            got = tokens.dispatch(x, ids, torch.ones(num_tokens, TOPK))
            everybody = weft.Collectives(comm).all_gather(x.detach()).flatten(0, 1)
            wanted = torch.empty_like(everybody)
            weft.rows.dequantise(comm, *weft.rows.quantise(comm, everybody, narrow=narrow), wanted,
                                 narrow=narrow)
            assert torch.equal(got.rows, wanted if comm.rank == 0 else wanted[:0])
            assert num_tokens == 0 or not torch.equal(wanted, everybody)
            tokens.combine(got.rows * 3, got.routing).sum().backward()
            assert (x.grad == 3).all()
        assert tokens.pool.num_bytes >= 4 * 2 * 700 * 256 * 2  # on rank 1, too


    run(dispatch, 2)


def test_subgroups():
    def split(comm):
        groups = [torch.distributed.new_group([0, 2]), torch.distributed.new_group([1, 3])]
        mine = weft.torch.communicator(groups[comm.rank % 2], machine=weft.Machine.CPU)
        total = weft.Collectives(mine).all_reduce(torch.tensor([comm.rank]))
        comm.host_barrier()
        return int(total)

    assert with_comm(split, 4) == [2, 4, 2, 4]


def test_example():
    train_example("moe_layer.py")
