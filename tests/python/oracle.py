# SPDX-License-Identifier: MIT
"""What operations must deliver, from everybody's inputs by plain numpy: no slots, no messages."""
from __future__ import annotations

import numpy as np


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def reduce(inputs: list[np.ndarray], op: str) -> np.ndarray:
    """In rank order, floats in float32 or wider, rounded once."""
    dtype = inputs[0].dtype
    wide = np.float32 if dtype == np.float16 else dtype
    total = inputs[0].astype(wide)
    for other in inputs[1:]:
        other = other.astype(wide)
        total = {"SUM": np.add, "PROD": np.multiply, "MAX": np.maximum,
                 "MIN": np.minimum}[op](total, other)
    return total.astype(dtype)


def even_placement(num_experts: int, num_ranks: int) -> list[list[int]]:
    """The ranks of each expert."""
    first = [num_experts * r // num_ranks for r in range(num_ranks + 1)]
    return [[r] for r in range(num_ranks) for _ in range(first[r], first[r + 1])]


class Routing:
    """Where everybody's tokens go. ids[r] is [N_r, K]; expert_ranks the ranks of each expert."""

    def __init__(self, ids: list[np.ndarray], expert_ranks: list[list[int]]):
        self.ids, self.expert_ranks = ids, expert_ranks
        self.num_ranks = len(ids)
        self.experts_of = [[e for e, ranks in enumerate(expert_ranks) if rank in ranks]
                           for rank in range(self.num_ranks)]

    def rank_of(self, source: int, token: int, expert: int) -> int | None:
        if not 0 <= expert < len(self.expert_ranks):
            return None
        ranks = self.expert_ranks[expert]
        return ranks[(source + token) % len(ranks)]

    def ranks_of(self, source: int, token: int) -> list[int]:
        ranks = {self.rank_of(source, token, e) for e in self.ids[source][token].tolist()}
        return sorted(ranks - {None})

    def rows_of(self, rank: int) -> list[tuple[int, int]]:
        """(source, token) of each row that comes to a rank, in order."""
        return [(s, t) for s in range(self.num_ranks) for t in range(len(self.ids[s]))
                if rank in self.ranks_of(s, t)]

    def local_ids(self, rank: int, source: int, token: int) -> list[int]:
        """For each choice the local id at the rank, or -1."""
        return [self.experts_of[rank].index(e) if self.rank_of(source, token, e) == rank else -1
                for e in self.ids[source][token].tolist()]

    def per_expert(self, rank: int) -> list[int]:
        counts = [0] * len(self.experts_of[rank])
        for source, token in self.rows_of(rank):
            for local in self.local_ids(rank, source, token):
                if local >= 0:
                    counts[local] += 1
        return counts

    def combined(self, source: int, rows: dict[int, np.ndarray], hidden: int,
                 bias: list[np.ndarray]) -> np.ndarray:
        """Sums of one rank's tokens; rows[r] is what rank r gives to combine, in its order."""
        places = {r: {key: i for i, key in enumerate(self.rows_of(r))} for r in rows}
        total = np.zeros((len(self.ids[source]), hidden), np.float32)
        for array in bias:
            total += array.astype(np.float32)
        for token in range(len(total)):
            for rank in self.ranks_of(source, token):
                total[token] += rows[rank][places[rank][source, token]].astype(np.float32)
        return total


def random_ids(seed: int, rank: int, num_tokens: int, num_topk: int, num_experts: int,
               dtype=np.int32) -> np.ndarray:
    """Distinct experts for each token, some of them -1."""
    generator = rng(seed, rank)
    scores = generator.random((num_tokens, num_experts))
    ids = np.argsort(scores, axis=1)[:, :num_topk].astype(dtype)
    ids[generator.random(ids.shape) < 0.1] = -1
    return ids
