# SPDX-License-Identifier: MIT
"""Collectives against numpy."""
import enum
from contextlib import suppress

import numpy as np
import pytest
import weft
from oracle import reduce, rng
from ranks import on_ranks, run

DTYPES = [np.int32, np.int64, np.uint8, np.float16, np.float32, np.float64]


def inputs(num_ranks, shape, dtype):
    values = [rng(9, r).standard_normal(shape) * 8 for r in range(num_ranks)]
    return [np.abs(v).astype(dtype) if dtype == np.uint8 else v.astype(dtype) for v in values]


def check_root(coll, given, root):
    """Reduce, gather and scatter of what all ranks are given, [R, ...] each."""
    rank = coll.comm.rank
    with np.errstate(over="ignore"):
        total = reduce(given, "SUM")
    result = coll.reduce(given[rank], root=root)
    rows = coll.gather(given[rank][0], root=root)
    assert rank == root or (result is None and rows is None)
    if rank == root:
        assert result.tobytes() == total.tobytes()
        assert rows.tolist() == [g[0].tolist() for g in given]
    in_place = given[rank].copy()
    returned = coll.scatter(in_place, in_place[rank], root) if rank == root else \
        coll.scatter(None, in_place[rank], root)
    assert returned.tolist() == given[root][rank].tolist()
    assert in_place[rank].tolist() == given[root][rank].tolist()


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
@on_ranks()
def test_every_operation(comm, num_ranks):
    coll = weft.Collectives(comm)
    rank = comm.rank
    for dtype in DTYPES:
        for op in ("SUM", "PROD", "MAX", "MIN"):
            given = inputs(num_ranks, (5, 7), dtype)
            with np.errstate(over="ignore"):
                expected = reduce(given, op)
            got = coll.all_reduce(given[rank], op=weft.ReduceOp[op])
            assert got.dtype == dtype and got.tobytes() == expected.tobytes(), (dtype, op)
            in_place = given[rank].copy()
            assert coll.all_reduce(in_place, in_place, weft.ReduceOp[op]) is in_place
            assert in_place.tobytes() == expected.tobytes()
        given = inputs(num_ranks, (num_ranks, 1000), dtype)
        with np.errstate(over="ignore"):
            scattered = reduce(given, "SUM")[rank]
        assert coll.reduce_scatter(given[rank]).tobytes() == scattered.tobytes()
        assert coll.all_gather(given[rank][0]).tolist() == [g[0].tolist() for g in given]
        assert coll.all_to_all(given[rank]).tolist() == [g[rank].tolist() for g in given]
        for root in range(num_ranks):
            array = given[rank].copy()
            coll.broadcast(array, root)
            assert array.tolist() == given[root].tolist()
            check_root(coll, given, root)


class OtherReduceOp(enum.IntEnum):
    """As PyTorch's: other numbers, and one other name."""

    AVG = 1
    PRODUCT = 2
    MAX = 4


@on_ranks(3)
def test_operations_by_name(comm):
    coll = weft.Collectives(comm)
    x = np.full(3, comm.rank + 1, np.float32)
    assert coll.all_reduce(x, op="sum")[0] == 6
    assert coll.all_reduce(x, op="Max")[0] == 3
    assert coll.all_reduce(x, op=OtherReduceOp.AVG)[0] == 2
    assert coll.all_reduce(x, op=OtherReduceOp.PRODUCT)[0] == 6
    assert coll.reduce_scatter(np.tile(x, (3, 1)), op="mean")[0] == 2
    greatest = coll.reduce(x, op=OtherReduceOp.MAX)
    assert comm.rank != 0 or greatest[0] == 3

    assert repr(coll) == f"<weft.Collectives on <weft.Communicator rank {comm.rank} of 3, CPU>>"
    coll.destroy()
    assert repr(coll).endswith(", destroyed>")


@on_ranks(2)
def test_bits_of_bf16(comm):
    """BF16 in uint16 arrays: sums in fp32, rounded to nearest even."""
    coll = weft.Collectives(comm)
    words = [rng(3, r).integers(0x3f00, 0x4100, 500).astype(np.uint16) for r in range(2)]
    floats = [(w.astype(np.uint32) << 16).view(np.float32) for w in words]
    total = (floats[0] + floats[1]).view(np.uint32)
    expected = ((total + 0x7fff + (total >> 16 & 1)) >> 16).astype(np.uint16)
    got = coll.all_reduce(words[comm.rank], dtype=weft.Dtype.BF16)
    assert got.tolist() == expected.tolist()
    with pytest.raises(weft.InvalidArgumentError, match="elements of type uint16"):
        coll.all_reduce(words[0])
    with pytest.raises(weft.InvalidArgumentError, match="2 bytes"):
        coll.all_reduce(words[0], dtype="float32")


@on_ranks(3)
def test_premultiplied_sums(comm):
    """Each rank's factor, as a number or in an array, which is read when the operation runs."""
    coll = weft.Collectives(comm)
    rank = comm.rank
    for dtype in (np.float16, np.float32):
        given = inputs(3, (3, 1000), dtype)
        factors = [np.float32(0.1 * (r + 1)) for r in range(3)]
        products = [(g.astype(np.float32) * f).astype(dtype) for g, f in zip(given, factors)]
        total = reduce(products, "SUM")
        for factor in (factors[rank], np.array(factors[rank]), float(factors[rank])):
            assert coll.all_reduce(given[rank], factor=factor).tobytes() == total.tobytes()
        in_place = given[rank].copy()
        coll.all_reduce(in_place, in_place, factor=factors[rank])
        assert in_place.tobytes() == total.tobytes()
        row = coll.reduce_scatter(given[rank], factor=factors[rank])
        assert row.tobytes() == total[rank].tobytes()
        result = coll.reduce(given[rank], root=1, factor=factors[rank])
        assert result is None if rank != 1 else result.tobytes() == total.tobytes()
    with pytest.raises(weft.InvalidArgumentError, match="op is MAX and factor 2"):
        coll.all_reduce(given[rank], op=weft.ReduceOp.MAX, factor=2)
    with pytest.raises(weft.InvalidArgumentError, match="op is PREMUL_SUM and factor None"):
        coll.all_reduce(given[rank], op=weft.ReduceOp.PREMUL_SUM)
    with pytest.raises(weft.InvalidArgumentError, match=r"factor is float64\[2\]"):
        coll.all_reduce(given[rank], factor=np.ones(2))
    with pytest.raises(weft.InvalidArgumentError, match="WEFT_INT32"):
        coll.all_reduce(np.ones(3, np.int32), factor=2)


def test_all_to_all_v():
    def exchange(comm):
        coll = weft.Collectives(comm)
        counts = [[(3 * s + 2 * r) % 5 for r in range(3)] for s in range(3)]
        rows = [[[100.0 * s + 10 * r + i, 0.5] for r in range(3) for i in range(counts[s][r])]
                for s in range(3)]
        sent = np.array(rows[comm.rank]).reshape(-1, 2)
        received = coll.all_to_all_v(sent, counts[comm.rank],
                                     [counts[s][comm.rank] for s in range(3)])
        assert received.tolist() == [[100.0 * s + 10 * comm.rank + i, 0.5] for s in range(3)
                                     for i in range(counts[s][comm.rank])]

    run(exchange, 3)
    run(exchange, 3, num_nodes=3)


def test_sends_and_receives():
    """Only between two of three; in a group to and from all, itself too; what an exception ends."""
    def exchange(comm):
        coll = weft.Collectives(comm)
        rank = comm.rank
        if rank < 2:
            array = np.full(70000, rank, np.int64)
            if rank == 0:
                coll.send(array, 1)
            else:
                assert (coll.recv(array, 0) == 0).all()
        received = np.zeros((3, 40000), np.float32)
        with coll.group():
            for peer in range(3):
                coll.send(np.full(40000, 10 * rank + peer, np.float32), peer)
            for peer in range(3):
                coll.recv(received[peer], peer)
            with pytest.raises(weft.InvalidArgumentError, match="stream must not be given"):
                coll.send(received, 0, stream=comm._stream_of_thread())
        assert [set(row) for row in received.tolist()] == [{10 * peer + rank} for peer in range(3)]
        with coll.group():
            with coll.group():
                coll.send(np.full(70000, rank, np.int64), (rank + 1) % 3)
                with pytest.raises(weft.InvalidArgumentError, match="the group around"):
                    with coll.group(weft.Stream(comm)):
                        pass
            np.ones(70000, np.int64)  # where what is sent may have been
            around = coll.recv(np.empty(70000, np.int64), (rank + 2) % 3)
        assert (around == (rank + 2) % 3).all()
        with pytest.raises(weft.InvalidArgumentError, match="nothing of the group"):
            with coll.group():
                with suppress(ZeroDivisionError):
                    with coll.group():
                        coll.send(received, 1 // 0)
        with pytest.raises(ZeroDivisionError):
            with coll.group():
                coll.send(received, (rank + 1) % 3)
                coll.recv(received, 1 // 0)
        with pytest.raises(weft.InvalidArgumentError, match="peer is 3"):
            coll.send(received, 3)
        assert coll.all_reduce(np.ones(3, np.float32)).tolist() == [3, 3, 3]

    run(exchange, 3)
    run(exchange, 3, num_nodes=3)


@on_ranks(2)
def test_algorithms(comm):
    pushed = weft.Collectives(comm, choices={
        weft.Collective.ALL_REDUCE: weft.Algorithm.TWOSHOT,
        weft.Collective.ALL_GATHER: weft.Algorithm.PUSH})
    assert pushed.algorithm(weft.Collective.ALL_REDUCE, 8) == weft.Algorithm.TWOSHOT
    told = pushed.explain(weft.Collective.ALL_REDUCE, 8)
    assert (told.algorithm, told.reason) == (weft.Algorithm.TWOSHOT, weft.CollReason.PINNED)
    assert told.table == b"" and told.expected_us == 0
    pull = weft.Algorithm.ONESHOT_PULL
    other = pushed.explain(weft.Collective.ALL_REDUCE, 1 << 20, pull)
    assert other.algorithm == pull
    with pytest.raises(weft.UnsupportedError):
        pushed.explain(weft.Collective.ALL_GATHER, 8, weft.Algorithm.TWOSHOT)
    x = comm.heap_empty(3000, np.float32)
    x[:] = comm.rank
    assert (pushed.all_reduce(x) == 1).all()
    pushed.destroy()


def test_mismatch_carries_a_rank():
    def differ(comm):
        coll = weft.Collectives(comm)
        with pytest.raises(weft.MismatchError) as caught:
            coll.all_reduce(np.zeros(8 + comm.rank, np.float32))
            coll.all_reduce(np.zeros(8, np.float32))
        return caught.value.code.name, caught.value.rank

    assert {code for code, _ in run(differ, 2)} == {"ERROR_MISMATCH"}


@on_ranks(2)
def test_arguments(comm):
    coll = weft.Collectives(comm)
    x = np.zeros((3, 4), np.float32)
    read_only = x.copy()
    read_only.flags.writeable = False
    for call, message in (
            (lambda: coll.reduce_scatter(x), "number of ranks, 2"),
            (lambda: coll.all_reduce(x, x[:2]), r"must be float32\[3, 4\]"),
            (lambda: coll.all_reduce(x, read_only), "recv is read-only"),
            (lambda: coll.all_reduce(x.T), "send is not contiguous"),
            (lambda: coll.all_reduce(x > 1), "elements of type bool"),
            (lambda: coll.all_to_all_v(x, [1, 1], [1, 1]), "counts say 2 and 2 rows"),
            (lambda: coll.all_to_all_v(x, [4, -1], [3, 0]), "0 or more"),
            (lambda: coll.all_to_all_v(x, [3], [3]), "each of the 2 ranks"),
            (lambda: coll.all_to_all_v(x[0, 0], [1, 0], [1, 0]), "send has shape"),
            (lambda: coll.all_reduce(x > 1, dtype=bool), "dtype is bool"),
            (lambda: coll.algorithm(weft.Collective.ALL_REDUCE, -1),
             "bytes is -1, allowed are 0..18446744073709551615"),
            (lambda: coll.all_reduce(x, factor=10**400), "factor is 10+, allowed are"),
            (lambda: coll.all_reduce(x, op=-1, factor=2), "op is -1 and factor 2"),
            (lambda: coll.all_reduce(x, op="summ"),
             "op is 'summ'; it must be one of weft.ReduceOp, SUM, PROD, MAX, MIN, AVG"),
            (lambda: coll.reduce(x, op=weft.Algorithm.RELAY), "must be one of weft.ReduceOp"),
            (lambda: weft.Collectives(comm, num_blocks="2"), "'2'; it must be an integer, or"),
            (lambda: coll.broadcast(x, root=2**32), "root is 4294967296, allowed are"),
            (lambda: weft.Collectives(comm, staging_bytes=2**64), "staging_bytes is 18446"),
            (lambda: coll.broadcast(x, root=None), "root is None; it must be an integer"),
            (lambda: weft.Collectives(comm, packet_byte=1), "no attribute 'packet_byte'")):
        with pytest.raises((weft.InvalidArgumentError, AttributeError, TypeError),
                           match=message):
            call()
