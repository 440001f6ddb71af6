# SPDX-License-Identifier: MIT
"""Errors of weft.torch.TokenDispatcher, and right calls after them; skipped without PyTorch."""
import copy
import pickle

import pytest
import weft
from ranks import on_ranks
from torch_ranks import torch

import weft.torch

EXPERTS, HIDDEN = 4, 16


def tokens(num_tokens, dtype=torch.float32):
    ids = torch.arange(num_tokens)[:, None] % EXPERTS
    return torch.ones(num_tokens, HIDDEN, dtype=dtype), ids, torch.ones(num_tokens, 1)


def step(experts, num_tokens, dtype=torch.float32):
    x, ids, weights = tokens(num_tokens, dtype)
    got = experts.dispatch(x, ids, weights)
    assert torch.equal(experts.combine(got.rows * 2, got.routing), x * 2)


@on_ranks(2, timeout_ms=60000)
def test_types_that_differ(comm):
    """All ranks get an error at once, which names the argument, and go on."""
    experts = weft.torch.TokenDispatcher(comm, EXPERTS, 1, arena_bytes=1 << 20)
    step(experts, 8)
    x, ids, weights = tokens(8)
    for second, name in ((x.bfloat16(), r"x: it is (float32|bfloat16)\[N, 16\] on this rank"),
                         (x[:, :8], r"x: it is float32\[N, (8|16)\]")):
        with pytest.raises(weft.MismatchError, match=f"ranks disagree on {name}"):
            experts.dispatch(second if comm.rank else x, ids, weights)
        step(experts, 8)
    with pytest.raises(weft.MismatchError, match="topk_idx: it is torch.int(32|64) on this"):
        experts.dispatch(x, ids.int() if comm.rank else ids, weights)
    step(experts, 3, torch.bfloat16)


@on_ranks(2)
def test_wrong_arguments(comm):
    """One rank makes a wrong call, then a right one. The other rank waits for the right one."""
    experts = weft.torch.TokenDispatcher(comm, EXPERTS, 1, arena_bytes=1 << 20)
    step(experts, 8)
    x, ids, weights = tokens(8)
    if comm.rank == 0:
        for wrong in (x[:5], x[0], x[..., None], x.int()):
            with pytest.raises(weft.InvalidArgumentError, match="x is torch.* it must be"):
                experts.dispatch(wrong, ids, weights)
        for wrong in (weights[:5], weights.repeat(1, 2), weights.int()):
            with pytest.raises(weft.InvalidArgumentError, match="topk_weights is torch"):
                experts.dispatch(x, ids, wrong)
        for wrong in (ids[:5], ids[:, 0], ids.repeat(1, 2), ids.float()):
            with pytest.raises(weft.InvalidArgumentError, match="is|has"):
                experts.dispatch(x, wrong, weights)
    got = experts.dispatch(x, ids, weights)
    if comm.rank == 0:
        for wrong in (got.rows.bfloat16(), got.rows[:, :8]):
            with pytest.raises(weft.InvalidArgumentError, match=r"x of its dispatch\(\) was"):
                experts.combine(wrong, got.routing)
        with pytest.raises(weft.InvalidArgumentError, match="routing is a tuple"):
            experts.combine(got.rows, tuple(got))
    assert torch.equal(experts.combine(got.rows, got.routing), x)
    # Expanded tensors give the right values.
    expanded = torch.ones(1, HIDDEN).expand(8, HIDDEN)
    got = experts.dispatch(expanded, ids, torch.ones(1, 1).expand(8, 1))
    halves = torch.full((1, 1), 0.5).expand(*got.rows.shape)
    assert torch.equal(experts.combine(halves, got.routing), x / 2)


@on_ranks(1)
def test_copies(comm, capfd):
    experts = weft.torch.TokenDispatcher(comm, EXPERTS, 1, arena_bytes=1 << 20)
    got = experts.dispatch(*tokens(4))
    for what in (comm, experts, got.routing, got, experts.pool, experts.ep, got.routing.handle):
        for function in (copy.copy, copy.deepcopy, pickle.dumps):
            if what is not got or function is not copy.copy:
                with pytest.raises(TypeError, match="can be neither copied nor pickled"):
                    function(what)
    for made in (weft.torch.Routing, weft.torch.Pool, weft.Stream, weft.arrays.Block,
                 weft.objects.Native, weft.Communicator, weft.Handle):
        made.__new__(made)  # ends without a word
    assert torch.equal(experts.combine(got.rows, got.routing), tokens(4)[0])
    assert capfd.readouterr().err == ""
