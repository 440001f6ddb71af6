# SPDX-License-Identifier: MIT
"""The normal mode's part of soak_deep_ep.py: random calls, right and wrong ones, and an oracle."""
import itertools

import torch
import weft
from deep_ep import Buffer
from soak_refusals import (refuse_all, refuse_one, wrong_cached, wrong_combines, wrong_dispatches,
                           wrong_layouts)

NUM_RANKS = 2
MAX_TOKENS, MAX_HIDDEN = 300, 512
MAX_WORST = 2 * NUM_RANKS * MAX_TOKENS + 1  # rows that a step asks room for
MUCH_BYTES = 1 << 28  # more than there is before
TOO_MANY = 2**30  # rows, more than a heap has room for
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32,
          "fp8": torch.float8_e4m3fn, "uint8": torch.uint8}


class Reversed:
    """A group's ranks in the other order: another group."""

    def __init__(self, group):
        self.group = group

    def Get_rank(self):  # noqa: N802
        return NUM_RANKS - 1 - self.group.rank()

    def Get_size(self):  # noqa: N802
        return NUM_RANKS

    def allgather(self, item):
        everybody = [None] * NUM_RANKS
        torch.distributed.all_gather_object(everybody, item, self.group)
        return everybody[::-1]


class Routes:
    """Where everybody's tokens go, as each rank can compute it."""

    def __init__(self, draw, seed):
        self.seed, self.num_experts = seed, draw.choice([2, 3, 4, 7])
        self.num_topk = draw.randint(1, min(self.num_experts, 3))
        self.has_topk, self.alignment = draw.random() < 0.8, draw.choice([1, 1, 8])
        self.hidden, self.rows_are = draw.choice([8, 64, MAX_HIDDEN]), draw.choice([*DTYPES])
        most, to_one = draw.choice([1, 5, 40, 40, MAX_TOKENS]), draw.random() < 0.1
        ids_dtype = draw.choice([torch.int64, torch.int32])
        self.ids, self.weights, self.is_in_rank = [], [], []
        for source in range(NUM_RANKS):
            generator = torch.Generator().manual_seed(NUM_RANKS * seed + source)
            num_tokens = int(torch.randint(0, most + 1, (1,), generator=generator))
            ids = torch.rand(num_tokens, self.num_experts, generator=generator).topk(
                1 if to_one else self.num_topk).indices.to(ids_dtype)
            ids[torch.rand(ids.shape, generator=generator) < 0.1] = -1
            self.ids.append(ids if not to_one else torch.zeros_like(ids))
            self.weights.append(torch.randint(1, 5, ids.shape, generator=generator) / 4)
            self.is_in_rank.append(torch.stack(
                [self.is_local(source, r).any(1) for r in range(NUM_RANKS)], 1))
        self.num_rows = [sum(int(there[:, r].sum()) for there in self.is_in_rank)
                         for r in range(NUM_RANKS)]

    def first_expert(self, rank):
        return self.num_experts * rank // NUM_RANKS

    def is_local(self, source, rank):
        """Of each choice of a token of source."""
        ids = self.ids[source]
        return (ids >= self.first_expert(rank)) & (ids < self.first_expert(rank + 1))

    def planes(self, source, version=0):
        """Small integers, whose sums are exact; with scales if they are FP8."""
        generator = torch.Generator().manual_seed(NUM_RANKS * (self.seed + 77 * version) + source)
        shape = len(self.ids[source]), self.hidden
        low = 0 if self.rows_are == "uint8" else -8
        x = torch.randint(low, 9, shape, generator=generator).to(DTYPES[self.rows_are])
        scales = torch.rand(shape[0], -(-self.hidden // 128), generator=generator)
        return (x, scales) if self.rows_are == "fp8" else (x,)

    def gathered(self, rank, of_source):
        """Of each row that comes to rank, in order."""
        return torch.cat([of_source(s)[self.is_in_rank[s][:, rank]] for s in range(NUM_RANKS)])

    def expected_planes(self, rank, version):
        return [self.gathered(rank, lambda s, i=i: self.planes(s, version)[i])
                for i in range(len(self.planes(rank)))]

    def expected_choices(self, rank):
        """Local ids and weights."""
        ids = self.gathered(rank, lambda s: (self.ids[s] - self.first_expert(rank)).masked_fill(
            ~self.is_local(s, rank), -1))
        return ids, self.gathered(rank, lambda s: self.weights[s] * self.is_local(s, rank))

    def expected_counts(self, rank):
        counts = [sum(int((ids == e).sum()) for ids in self.ids)
                  for e in range(self.first_expert(rank), self.first_expert(rank + 1))]
        return [-(-n // self.alignment) * self.alignment for n in counts]


class Step:
    """A dispatch of one rank, and what its experts answer: the rows, times the rank's number."""

    def __init__(self, routes, rank, buffer, handle, worst):
        self.routes, self.rank, self.buffer, self.handle = routes, rank, buffer, handle
        self.lacks_rows = 0 < worst < max(routes.num_rows)
        self.answers = self.weights = None

    def answer(self, rows, weights):
        if rows.dtype not in (torch.bfloat16, torch.float16, torch.float32):
            rows = rows.bfloat16()
        self.answers, self.weights = rows.mul_(self.rank + 1), weights

    def check_sums(self, out, weights, bias):
        routes, rank = self.routes, self.rank
        times = (routes.is_in_rank[rank] * torch.arange(1, NUM_RANKS + 1)).sum(1, keepdim=True)
        wanted = routes.planes(rank)[0].float() * times + sum(each.float() for each in bias)
        assert torch.equal(out.float(), wanted), "sums are wrong"
        if weights is not None:
            ids = routes.ids[rank]
            assert torch.equal(weights, routes.weights[rank].masked_fill(ids < 0, 0))


class NormalCaller:
    """The normal mode of one rank, on the Buffer and an older one."""

    def __init__(self, group, buffer, shared, alone, seed):
        self.rank, self.group, self.buffer = group.rank(), group, buffer
        self.shared, self.alone, self.seeds = shared, alone, itertools.count(seed)
        self.steps, self.num_calls = [], 0
        stranger = Buffer(None, comm=Reversed(group))
        rows, ids = torch.ones(3, 8), torch.zeros(3, 1).long()
        per_rank, _, per_expert, in_rank, _ = stranger.get_dispatch_layout(ids, 2)
        self.strange = stranger.dispatch(rows, None, per_rank, None, in_rank, per_expert)[4]
        self.older, self.others = None, []
        for _ in range(2):
            self._renew()
        self._grow()

    def _grow(self):
        """Memory becomes as large as any batch needs."""
        routes = self._routes()
        routes.hidden, routes.rows_are, routes.has_topk = MAX_HIDDEN, "fp32", True
        self.buffer.dispatch(**self._right(routes, self.buffer), num_worst_tokens=MAX_WORST)

    def _renew(self):
        """Another Buffer, whose handles this one takes, and those of the one before no more."""
        self.steps = [step for step in self.steps if step.buffer is not self.older]
        if self.older:
            *_, handle, _ = self.older.dispatch(**self._right(self._routes(), self.older))
            self.older.destroy()
            self.others = [handle, self.strange]
        self.older = Buffer(self.group, explicitly_destroy=True)

    def call(self, function, right, wrongs):
        self.num_calls += 1
        if self.alone.random() < 0.3:
            self.num_calls += 1
            refuse_one(self.alone, function, right, wrongs)
        return function(**right, async_finish=self.alone.random() < 0.2)

    def _routes(self):
        return Routes(self.shared, next(self.seeds))

    def _right(self, routes, buffer):
        """Arguments of a dispatch."""
        ids, planes = routes.ids[self.rank], routes.planes(self.rank)
        per_rank, _, per_expert, in_rank, _ = self.call(
            buffer.get_dispatch_layout, {"topk_idx": ids, "num_experts": routes.num_experts},
            wrong_layouts(ids))
        assert torch.equal(in_rank, routes.is_in_rank[self.rank])
        assert torch.equal(per_rank, in_rank.sum(0).int())
        assert per_expert.tolist() == [int((ids == e).sum()) for e in range(routes.num_experts)]
        choices = {"topk_idx": ids, "topk_weights": routes.weights[self.rank]}
        return {"x": planes if len(planes) > 1 else planes[0], "num_tokens_per_rank": per_rank,
                "is_token_in_rank": in_rank, "num_tokens_per_expert": per_expert,
                "expert_alignment": routes.alignment} | (choices if routes.has_topk else {})

    def dispatch(self):
        routes, buffer = self._routes(), self.shared.choice([self.buffer, self.older])
        right, most = self._right(routes, buffer), max(routes.num_rows)
        worst = 0
        if routes.has_topk and self.shared.random() < 0.3:
            worst = self.shared.randint(1, 2 * most + 1)
        if self.shared.random() < 0.1:
            self._fail_together(buffer, right)
        got, ids, weights, counts, handle, _ = self.call(
            buffer.dispatch, right | {"num_worst_tokens": worst},
            wrong_dispatches(right, self.others))
        step = Step(routes, self.rank, buffer, handle, worst)
        if not step.lacks_rows:
            self._check_rows(routes, got, 0)
            assert counts == ([] if worst else routes.expected_counts(self.rank))
            if routes.has_topk:
                for each, wanted in zip((ids, weights), routes.expected_choices(self.rank)):
                    assert torch.equal(each[:len(wanted)], wanted), "choices are wrong"
                assert (ids[routes.num_rows[self.rank]:] == -1).all()
        rows = got[0] if isinstance(got, tuple) else got
        step.answer(rows.clone() if self.alone.random() < 0.5 else rows, weights)
        self.steps = self.steps[-3:] + [step]

    def _check_rows(self, routes, got, version):
        got = got if isinstance(got, tuple) else (got,)
        for each, wanted in zip(got, routes.expected_planes(self.rank, version)):
            assert torch.equal(each[:len(wanted)].float(), wanted.float()), "rows are wrong"

    def _fail_together(self, buffer, right):
        """All ranks are refused."""
        x, *scales = right["x"] if isinstance(right["x"], tuple) else (right["x"],)
        other = self.shared.choice([x.double(), torch.empty(len(x), 3).to(x), (x, x, x)])
        limited = self.shared.randrange(NUM_RANKS)
        wrongs = [({"x": other if self.rank else right["x"]}, weft.MismatchError)]
        if "topk_idx" in right:
            wrongs += [({"num_worst_tokens": TOO_MANY}, weft.OutOfMemoryError),
                       ({"num_worst_tokens": MUCH_BYTES // (x.shape[1] * x.itemsize)},
                        weft.OutOfMemoryError),
                       ({"num_worst_tokens": 9 * self.rank + 3}, weft.MismatchError)]
        number = self.shared.randrange(len(wrongs))
        self.num_calls += 1
        refuse_all(buffer.dispatch, right, *wrongs[number], number == 2 and self.rank == limited)

    def use_handle(self):
        """Of one of the last steps, in a second dispatch or a combine, by any Buffer."""
        if not self.steps:
            return
        step = self.shared.choice(self.steps)
        use = self._dispatch_again if self.shared.random() < 0.3 else self._combine
        buffer = self.shared.choice([self.buffer, self.older])
        if not step.lacks_rows:
            use(buffer, step)
            return
        try:
            use(buffer, step)
        except weft.CapacityError as error:
            assert f"{max(step.routes.num_rows)} rows came" in str(error)
        else:
            raise AssertionError("lost rows and said nothing")

    def _dispatch_again(self, buffer, step):
        planes = step.routes.planes(self.rank, version=1)
        right = {"x": planes if len(planes) > 1 else planes[0], "handle": step.handle}
        got, *none, _ = self.call(buffer.dispatch, right, wrong_cached(right, self.others))
        assert none == [None] * 4
        self._check_rows(step.routes, got, 1)

    def _combine(self, buffer, step):
        shape = len(step.routes.ids[self.rank]), step.routes.hidden
        bias = tuple(torch.full(shape, n).to(step.answers) for n in (1, 2))
        bias = bias[:self.shared.randint(1, 2)]
        right = {"x": step.answers, "handle": step.handle, "bias": bias,
                 "topk_weights": step.weights if self.shared.random() < 0.5 else None}
        out, weights, _ = self.call(buffer.combine, right, wrong_combines(right, self.others))
        step.check_sums(out, weights, bias)

    def go_on(self):
        drawn = self.shared.random()
        if drawn < 0.002:
            self._renew()
        elif drawn < 0.5:
            self.dispatch()
        else:
            self.use_handle()
