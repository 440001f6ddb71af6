# SPDX-License-Identifier: MIT
"""A layer in which busy experts have copies for one step: results and gradients are those without
copies, and no rank has much more than its share."""
import numpy as np
import pytest
import weft
from oracle import rng
from ranks import on_ranks, run
from weft.abi import BALANCE_GRANULES

RANKS, SHARE, SPARE, TOPK, TOKENS, HIDDEN = 4, 3, 2, 2, 160, 6
EXPERTS, REPLICAS = RANKS * SHARE, SHARE + SPARE
BASE = [rank * SHARE + i if i < SHARE else -1 for rank in range(RANKS) for i in range(REPLICAS)]


def ids_of(rank):
    """Some of them name no expert; experts of rank 1 are busy."""
    ids = rng(1, rank).integers(-1, EXPERTS, (TOKENS, TOPK))
    busy = rng(2, rank).random((TOKENS, TOPK)) < 0.6
    return np.where(busy, SHARE + ids % 2, ids).astype(np.int64)


def x_of(rank):
    """Whole numbers, whose sums are exact in any order."""
    return rng(3, rank).integers(-8, 9, (TOKENS, HIDDEN)).astype(np.float32)


def weights_of(expert):
    return rng(4, expert).integers(-8, 9, HIDDEN).astype(np.float32)


def gradient_of(expert):
    return sum((x_of(rank)[:, None] * (ids_of(rank) == expert)[..., None]).sum((0, 1))
               for rank in range(RANKS))


def layer(comm):
    """Returns how many rows this rank's experts had."""
    ids, x = ids_of(comm.rank), x_of(comm.rank)
    loads = [sum(int((ids_of(rank) == expert).sum()) for rank in range(RANKS))
             for expert in range(EXPERTS)]
    filled = weft.balance.fill([loads], [BASE], RANKS)
    experts, mine = filled.experts[0], comm.rank * REPLICAS
    assert experts != BASE

    weights, gradients = (comm.heap_empty((REPLICAS, HIDDEN), np.float32) for _ in range(2))
    staging = comm.heap_empty(1024, np.uint8)
    for i in range(REPLICAS):
        weights[i] = weights_of(BASE[mine + i]) if BASE[mine + i] >= 0 else np.nan
    weft.copies.fetch(comm, BASE, experts, [weights])

    replicas = weft.copies.choose(comm, ids, np.array(filled.granules[0], np.int32))
    handle = weft.ExpertParallel(comm, len(BASE)).handle(TOPK)
    handle.layout(replicas)
    handle.notify()
    handle.wait_counts()
    received = handle.dispatch(x, arena=weft.Arena(comm, 1 << 20), topk_idx=replicas,
                               topk_weights=np.ones(ids.shape, np.float32))
    gradients[:] = 0
    for row, local in zip(received.x, received.topk_idx):
        chosen = [i for i in local.tolist() if i >= 0]
        for i in chosen:
            gradients[i] += row
        row *= sum(weights[i] for i in chosen)
    out, _ = handle.combine(received.x, topk_weights=received.topk_weights)
    wanted = [x[t] * sum(weights_of(e) for e in ids[t].tolist() if e >= 0) if (ids[t] >= 0).any()
              else np.zeros(HIDDEN) for t in range(TOKENS)]
    assert out.tolist() == np.array(wanted).tolist()

    weft.copies.reduce(comm, BASE, experts, [gradients], staging)
    for i in range(SHARE):
        assert gradients[i].tolist() == gradient_of(BASE[mine + i]).tolist()
    return int((received.topk_idx >= 0).sum()), max(loads)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_step_with_copies(nodes):
    results = run(layer, RANKS, num_nodes=nodes)
    rows, busiest = [rows for rows, _ in results], results[0][1]
    mean = sum(rows) / RANKS
    assert max(rows) <= 1.01 * mean + busiest / BALANCE_GRANULES + 2 * np.sqrt(mean)


@on_ranks(2)
def test_refusals(comm):
    base, experts = [0, -1, 1, -1], [0, 1, 1, 0]
    rows, halves = (comm.heap_empty((2, 3), dtype) for dtype in (np.float32, np.float16))
    staging, ids = comm.heap_empty(64, np.uint8), np.zeros((2, 2), np.int32)
    for text, call in {
            "experts has 3 replicas, base has 4":
                lambda: weft.copies.fetch(comm, base, experts[:3], [rows]),
            "base has 3 replicas, must be a multiple of the 2 ranks":
                lambda: weft.copies.fetch(comm, base[:3], experts[:3], [rows]),
            r"weights\[0\] is \[1, 3\]; it must have 2 rows":
                lambda: weft.copies.fetch(comm, base, experts, [rows[:1]]),
            r"planes\[0\].dst is":
                lambda: weft.copies.fetch(comm, base, experts, [np.zeros((2, 3), np.float32)]),
            "dtype is int8":
                lambda: weft.copies.reduce(comm, base, experts, [rows], staging, dtype="int8"),
            r"gradients\[1\] has elements of float16, gradients\[0\] of float32":
                lambda: weft.copies.reduce(comm, base, experts, [rows, halves], staging),
            r"granules has 33 elements; it must be a multiple of 16":
                lambda: weft.copies.choose(comm, ids, np.zeros(33, np.int32)),
            "granules is":
                lambda: weft.copies.choose(comm, ids, np.zeros(32)),
            }.items():
        with pytest.raises(weft.InvalidArgumentError, match=text):
            call()
