# SPDX-License-Identifier: MIT
"""The normal mode's part of soak_deep_ep.py: random calls, right and wrong ones, and an oracle."""
import itertools

import torch
import weft
from deep_ep import Buffer

NUM_RANKS = 2
REFUSALS = (weft.InvalidArgumentError, AssertionError, TypeError)
MAX_TOKENS, MAX_HIDDEN = 300, 512
MAX_WORST = 2 * NUM_RANKS * MAX_TOKENS + 1  # rows that a step asks room for
TOO_MANY = 2**30  # rows, more than a heap has room for
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32,
          "fp8": torch.float8_e4m3fn, "uint8": torch.uint8}


class One:
    """A group of one rank."""

    def Get_rank(self):  # noqa: N802
        return 0

    def Get_size(self):  # noqa: N802
        return 1

    def allgather(self, item):
        return [item]


def refuse_one(alone, function, right, wrongs):
    """Makes one of the wrong calls, which must be refused."""
    wrong = alone.choice(list(wrongs))
    try:
        function(**right | wrong)
    except REFUSALS:
        return
    raise AssertionError(f"accepted {wrong}")


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


class NormalCaller:
    """One rank. call: of the whole caller, which makes wrong calls before right ones."""

    def __init__(self, group, buffer, shared, alone, seed):
        self.rank, self.group, self.buffer = group.rank(), group, buffer
        self.shared, self.alone, self.seeds = shared, alone, itertools.count(seed)
        self.steps, self.num_calls = [], 0
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
            rows, *_, handle, _ = self.older.dispatch(**self._right(self._routes(), self.older))
            self.older.destroy()
            self.others = [handle]
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
        refused, error = {"x": other if self.rank else right["x"]}, weft.MismatchError
        if "topk_idx" in right and self.shared.random() < 0.6:
            refused, error = self.shared.choice([
                ({"num_worst_tokens": TOO_MANY}, weft.OutOfMemoryError),
                ({"num_worst_tokens": 9 * self.rank + 3}, weft.MismatchError)])
        self.num_calls += 1
        try:
            buffer.dispatch(**right | refused)
        except error:
            return
        raise AssertionError(f"{refused} of all ranks was accepted")

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
