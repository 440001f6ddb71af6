# SPDX-License-Identifier: MIT
"""What soak_deep_ep.py calls in the wrong way."""
import resource
from contextlib import contextmanager

import torch
import weft

REFUSALS = (weft.InvalidArgumentError, AssertionError, TypeError)


@contextmanager
def memory_limit(is_set):
    """The heap of this rank cannot grow: it is a file."""
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    if is_set:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, unlimited[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)


def refuse_all(function, right, wrong, error, is_limited=False):
    """All ranks get the error."""
    try:
        with memory_limit(is_limited):
            function(**right | wrong)
    except error:
        return
    raise AssertionError(f"accepted {wrong} on all ranks")


def refuse_one(alone, function, right, wrongs):
    """Makes one of the wrong calls, which must be refused."""
    wrong = alone.choice(list(wrongs))
    try:
        function(**right | wrong)
    except REFUSALS:
        return
    raise AssertionError(f"accepted {wrong}")


def wrong_layouts(ids):
    for wrong in (ids[:, 0], ids[None], ids.float(), None, [[0]]):
        yield {"topk_idx": wrong}
    for wrong in (0, -1, 1 << 30, 2**40, 2.5, None, "many"):
        yield {"num_experts": wrong}


def wrong_handles(handle, others):
    for wrong in (3, tuple(handle) if handle else (), *others):
        yield {"handle": wrong}


def wrong_dispatches(right, others):
    """With which nothing is sent."""
    x, in_rank = right["x"], right["is_token_in_rank"]
    rows, *scales = x if isinstance(x, tuple) else (x,)
    more = rows.new_empty(len(rows) + 1, rows.shape[1])
    for wrong in (None, 3, [rows], torch.tensor(1.), more, (more, *scales), (rows, more[:, :1]),
                  (rows, None), ()):
        yield {"x": wrong}
    for wrong in (None, 3, in_rank.float(), in_rank.repeat(1, 2), in_rank[:, 0]):
        yield {"is_token_in_rank": wrong}
    per_expert = right["num_tokens_per_expert"]
    for wrong in (None, 3, per_expert.tolist(), per_expert.long(), per_expert[:0]):
        yield {"num_tokens_per_expert": wrong}
    for wrong in (-1, 2**40, 2.5, None, "many"):
        yield {"num_worst_tokens": wrong}
    for wrong in (-1, 2**40, 2.5, None, "many"):
        yield {"expert_alignment": wrong}
    yield {"config": 3}
    yield from wrong_handles(None, others)
    if "topk_idx" not in right:
        yield {"num_worst_tokens": 3}
        return
    ids, weights = right["topk_idx"], right["topk_weights"]
    for wrong in (None, 3, ids.float(), ids[:, 0], torch.zeros(len(ids) + 1, 1).to(ids)):
        yield {"topk_idx": wrong}
    for wrong in (None, 3, weights.half(), weights[:, 0], weights[:, :0],
                  torch.zeros(len(ids) + 1, ids.shape[1])):
        yield {"topk_weights": wrong}


def wrong_cached(right, others):
    rows, *scales = right["x"] if isinstance(right["x"], tuple) else (right["x"],)
    more = rows.new_empty(len(rows) + 1, rows.shape[1])
    for wrong in (None, 3, more, (more, *scales), torch.zeros(len(rows), 9999)):
        yield {"x": wrong}
    yield {"topk_idx": torch.zeros(len(rows), 1), "topk_weights": torch.zeros(len(rows), 1)}
    yield from wrong_handles(right["handle"], others)


def wrong_combines(right, others):
    x, handle, num_tokens = right["x"], right["handle"], right["bias"][0].shape[0]
    for wrong in (None, 3, torch.ones(len(x) + 1, x.shape[1]).to(x)):
        yield {"x": wrong}
    if len(x):
        for wrong in (x[:-1], x[:, 1:], x[:, None], x[:, :1].contiguous(), x.double(), x.int(),
                      x[:1].expand(len(x) + 1, -1)):
            yield {"x": wrong}
    for wrong in (3, torch.ones(len(x) + 1, 1), torch.ones(len(x) + 1, 1).half()):
        yield {"topk_weights": wrong}
    for wrong in (3, torch.zeros(num_tokens + 1, x.shape[1]).to(x), torch.zeros(num_tokens).to(x),
                  torch.zeros(num_tokens, x.shape[1]).double()):
        yield {"bias": wrong}
    yield from wrong_handles(handle, others)
    yield {"handle": None}
    yield {"config": 3}
