# SPDX-License-Identifier: MIT
"""Functions within torch.compile: the same values as without it, before and after; skipped without
PyTorch."""
import gc
import sys

import pytest
import weft
from ranks import on_ranks
from torch_ranks import on_group, torch
from weft.drop_in import folder

pytest.importorskip("torch._dynamo")
# The first compilation imports modules for seconds: once, before ranks are forked.
torch.compile(torch.neg, backend="eager")(torch.ones(2))
sys.path.insert(0, folder())
import deep_ep  # noqa: E402
import weft.torch  # noqa: E402
from test_custom_all_reduce import group, ops  # noqa: E402

EXPERTS = 4


def check(layer, capfd, make_args, expected):
    """layer(*make_args(number of tokens)) is expected(number of tokens), and nobody complains."""
    compiled = torch.compile(layer, backend="eager")
    for function, num_tokens in ((layer, 3), (compiled, 3), (layer, 3), (compiled, 5),
                                 (compiled, 0), (layer, 5)):
        assert torch.equal(function(*make_args(num_tokens)), expected(num_tokens))
        gc.collect()
    assert capfd.readouterr().err == ""


def tokens(num_tokens, dtype=torch.float32):
    ids = torch.arange(2 * num_tokens).view(-1, 2) % EXPERTS
    return torch.ones(num_tokens, 128, dtype=dtype), ids, torch.full((num_tokens, 2), 0.5)


@on_ranks(2)
def test_token_dispatcher(comm, capfd):
    experts = weft.torch.TokenDispatcher(comm, EXPERTS, 2, arena_bytes=1 << 20)

    def layer(x, ids, weights):
        got = experts.dispatch(x, ids, weights)
        return experts.combine(got.rows * 2, got.routing)

    # Each of the two ranks has a pair of experts, so a token goes to one rank.
    check(layer, capfd, tokens, lambda n: torch.full((n, 128), 2.))
    x, ids, weights = tokens(3)
    x.requires_grad_()
    torch.compile(layer, backend="eager")(x, ids, weights).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 128), 2.))


@on_group(2)
def test_deep_ep_normal(process_group, capfd):
    buffer = deep_ep.Buffer(process_group)

    def layer(x, ids, weights):
        per_rank, _, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, EXPERTS)
        rows, _, _, _, handle, event = buffer.dispatch(
            x, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank,
            num_tokens_per_expert=per_expert, topk_idx=ids, topk_weights=weights,
            async_finish=True)
        event.current_stream_wait()
        out, _, event = buffer.combine(rows * 2, handle)
        return out

    check(layer, capfd, lambda n: tokens(n, torch.bfloat16),
          lambda n: torch.full((n, 128), 2., dtype=torch.bfloat16))


@pytest.mark.parametrize("hook", [False, True])
@on_group(2)
def test_deep_ep_low_latency(process_group, hook, capfd):
    buffer = deep_ep.Buffer(process_group, low_latency_mode=True)

    def layer(x, ids, weights):
        rows, counts, handle, event, receive = buffer.low_latency_dispatch(
            x, ids, 8, EXPERTS, use_fp8=False, return_recv_hook=hook)
        if hook:
            receive()
        out, event, receive = buffer.low_latency_combine(rows * 2, ids, weights, handle,
                                                         return_recv_hook=hook)
        if hook:
            receive()
        return out

    check(layer, capfd, lambda n: tokens(n, torch.bfloat16),
          lambda n: torch.full((n, 128), 2., dtype=torch.bfloat16))


@on_ranks(1)
def test_custom_all_reduce(comm, capfd):
    fa = group(comm)

    def layer(x):
        out = torch.empty_like(x)
        ops.all_reduce(fa, x * 2, out, 0, 0)
        return out + 1

    check(layer, capfd, lambda n: (torch.ones(n, 4),), lambda n: torch.full((n, 4), 3.))
    ops.dispose(fa)
