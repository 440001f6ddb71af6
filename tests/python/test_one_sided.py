# SPDX-License-Identifier: MIT
"""Puts, gets, signals and atomic adds; quantised rows."""
import numpy as np
import pytest
import weft
from oracle import rng
from ranks import on_ranks, run
from weft import one_sided


@pytest.mark.parametrize("num_nodes", [1, 3])
def test_ring(num_nodes):
    """Each rank writes to the next one, which waits for the signal."""
    def pass_on(comm):
        values = comm.heap_empty((4, 10), np.float64)
        words = comm.heap_empty(4, np.int64)
        values[:], words[:] = -1, 0
        comm.host_barrier()
        following, previous = (comm.rank + 1) % 3, (comm.rank + 2) % 3
        for step in range(1, 4):
            values[0] = 10 * comm.rank + step
            one_sided.put_signal(comm, values[1], values[0], words[0:1], 1, following)
            one_sided.wait_until(comm, words[0:1], step)
            assert (values[1] == 10 * previous + step).all()
            one_sided.signal(comm, words[1:2], 1, previous)  # it may be overwritten
            one_sided.wait_until(comm, words[1:2], step)
        one_sided.get(comm, values[2], values[0], following)
        assert (values[2] == 10 * following + 3).all()
        one_sided.put(comm, values[3], values[0], previous)
        one_sided.add(comm, words[2:3], -5, 0)
        one_sided.quiet(comm)
        comm.host_barrier()
        assert (values[3] == 10 * following + 3).all()
        assert comm.rank != 0 or words[2] == -15
        comm.host_barrier()
        one_sided.fetch_add(comm, words[2:3], 1, words[3:4], 0)
        one_sided.fence(comm)
        one_sided.quiet(comm)
        comm.host_barrier()
        return int(words[3])

    assert sorted(run(pass_on, 3, num_nodes=num_nodes)) == [-15, -14, -13]


@on_ranks(1)
def test_arguments(comm):
    words = comm.heap_empty(4, np.int64)
    words[:] = 5
    one_sided.add(comm, words[:1], np.int32(-7), 0)
    one_sided.add(comm, words[1:2], 2**64 + 1, 0)
    assert words.tolist() == [-2, 6, 5, 5]
    for call, message in (
            (lambda: one_sided.put(comm, words, words[:2], 0), "dst has 32 bytes, src 16"),
            (lambda: one_sided.add(comm, words, 1, 0), "word is int64"),
            (lambda: one_sided.add(comm, words[:1], 1, 3), "rank"),
            (lambda: one_sided.add(comm, np.zeros(1, np.int64), 1, 0), "heap")):
        with pytest.raises(weft.InvalidArgumentError, match=message):
            call()


def fp8_values():
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    values = np.where(exponent == 0, mantissa / 8 * 2.0**-6,
                      (1 + mantissa / 8) * 2.0**(exponent - 7))
    values[exponent * 8 + mantissa == 127] = np.nan
    return np.where(codes & 128, -values, values).astype(np.float32)


@on_ranks(1)
def test_quantised_rows(comm):
    x = rng(8).standard_normal((9, 256)).astype(np.float32) * 3
    rows, scales = weft.rows.quantise(comm, x, group=64)
    amax = np.abs(x.reshape(9, 4, 64)).max(axis=2)
    assert scales.tobytes() == (amax * np.float32(1 / 448)).tobytes()
    exact = fp8_values()[rows].reshape(9, 4, 64) * scales[..., None]
    back = weft.rows.dequantise(comm, rows, scales, np.empty_like(x), group=64)
    assert back.tobytes() == exact.tobytes()
    assert (np.abs(back - x) <= np.abs(x) / 16 + amax.max() / 448 / 512).all()

    rows, scales = weft.rows.quantise(comm, x[:, :128], narrow=weft.Dtype.INT8, group=0)
    assert rows.dtype == np.int8 and scales.shape == (9, 1)
    assert (np.abs(rows * scales - x[:, :128]) <= scales * 0.51).all()

    with pytest.raises(weft.InvalidArgumentError, match="not a multiple of 100"):
        weft.rows.quantise(comm, x, group=100)
    with pytest.raises(weft.InvalidArgumentError, match="do not fit"):
        weft.rows.dequantise(comm, rows, scales, x)
