# SPDX-License-Identifier: MIT
"""Placements of experts, against the answers of deepseek-ai/EPLB and against their own rules."""
import collections
import json
import random
import statistics
from pathlib import Path

import pytest
import weft
from weft.balance import BalanceMode, MoveDistance, fill, place

HERE = Path(__file__).resolve().parent


def cases():
    """Those of the tree, and those of real traces where they are."""
    files = [HERE.parent / "data/eplb.json",
             HERE.parents[2] / "shared/data/eplb/cases.json"]
    return [case for file in files if file.exists() for case in json.loads(file.read_text())]


def solve(case, mode):
    return place(case["weight"], case["num_replicas"], case["num_gpus"],
                 num_nodes=case["num_nodes"], num_groups=case["num_groups"], mode=mode)


def shares_of(loads, experts):
    """The load of each replica of an expert."""
    copies = collections.Counter(experts)
    return {expert: loads[expert] / copies[expert] for expert in copies}


def imbalance_of(loads, experts, num_ranks):
    """The ranks that have an expert share its load alike."""
    length = len(experts) // num_ranks
    ranks = [set(experts[first:first + length]) for first in range(0, len(experts), length)]
    copies = collections.Counter(expert for rank in ranks for expert in rank)
    return max(sum(loads[expert] / copies[expert] for expert in rank)
               for rank in ranks) * num_ranks / sum(loads)


def test_answers_of_eplb():
    for case in cases():
        found = solve(case, BalanceMode.EPLB)
        for layer, loads in enumerate(case["weight"]):
            wanted = case["physical_to_logical"][layer]
            shares = shares_of(loads, wanted)
            # Replicas of equal load may stand for one another.
            assert [shares_of(loads, found.experts[layer])[expert]
                    for expert in found.experts[layer]] == [
                        shares[expert] for expert in wanted], (case["name"], layer)
            if len(set(shares.values())) == len(shares):
                assert found.experts[layer] == wanted, (case["name"], layer)
            assert found.imbalance[layer] == pytest.approx(
                imbalance_of(loads, wanted, case["num_gpus"]), rel=1e-5)


def test_best_is_never_worse():
    for case in cases():
        eplb, best = solve(case, BalanceMode.EPLB), solve(case, BalanceMode.BEST)
        check_rules(case, best)
        for layer in range(len(case["weight"])):
            assert best.imbalance[layer] <= eplb.imbalance[layer] * (1 + 1e-6), case["name"]
        # With many layers on nodes, the excess is at most half in the median.
        if case["num_nodes"] > 1 and len(case["weight"]) > 2:
            excess = [statistics.median(x.imbalance) - 1 for x in (eplb, best)]
            assert excess[1] <= excess[0] / 2, (case["name"], excess)


def test_nodes_exchange_groups():
    loads, groups = [[7, 7, 1, 8, 5, 4]], dict(num_nodes=2, num_groups=6)
    assert place(loads, 6, 2, mode=BalanceMode.EPLB, **groups).imbalance == [1.0625]
    assert place(loads, 6, 2, **groups).imbalance == [1.0]


def check_rules(case, placement):
    """All experts are there; groups stay on their node; ranks have as many replicas."""
    num_nodes, num_groups = case["num_nodes"], case["num_groups"]
    num_experts = len(case["weight"][0])
    for layer, experts in enumerate(placement.experts):
        assert len(experts) == case["num_replicas"]
        assert set(experts) == set(range(num_experts))
        assert placement.imbalance[layer] == pytest.approx(
            imbalance_of(case["weight"][layer], experts, case["num_gpus"]), rel=1e-5)
        if num_groups % num_nodes:
            continue
        nodes = collections.defaultdict(set)
        for replica, expert in enumerate(experts):
            nodes[expert * num_groups // num_experts].add(replica * num_nodes // len(experts))
        assert all(len(node) == 1 for node in nodes.values())


def test_ranks_are_those_of_expert_parallel():
    placement = place([[5, 1, 1, 1]], 8, 4)
    assert placement.expert_ranks(0) == [
        sorted({replica // 2 for replica, placed in enumerate(placement.experts[0])
                if placed == expert}) for expert in range(4)]
    with weft.Communicator.from_env() as comm:  # one rank, which counts once for an expert
        expert_ranks = place([[5, 1, 1, 1]], 6, 1).expert_ranks(0)
        assert expert_ranks == [[0]] * 4
        weft.ExpertParallel(comm, 4, expert_ranks=expert_ranks)


def distance(case, a, b):
    rank, node = case["num_replicas"] // case["num_gpus"], case["num_replicas"] // case["num_nodes"]
    return (MoveDistance.IN_RANK if a // rank == b // rank else
            MoveDistance.IN_NODE if a // node == b // node else MoveDistance.BETWEEN_NODES)


def test_moves_make_one_placement_of_another():
    drawn = random.Random(1)
    for case in cases():
        before = solve(case, BalanceMode.BEST)
        loads = [[load * drawn.uniform(0.8, 1.2) for load in row] for row in case["weight"]]
        wanted = solve({**case, "weight": loads}, BalanceMode.BEST)
        after, moves = before.moves_to(wanted)
        check_rules({**case, "weight": loads}, after)
        assert [move.distance for move in moves] == sorted(move.distance for move in moves)
        moved = [list(experts) for experts in before.experts]
        naive = 0
        for move in moves:
            source = before.experts[move.layer]
            assert source[move.from_replica] == move.expert
            assert move.distance == distance(case, move.from_replica, move.to_replica)
            assert move.distance == min(distance(case, replica, move.to_replica)
                                        for replica, expert in enumerate(source)
                                        if expert == move.expert)
            moved[move.layer][move.to_replica] = move.expert
        assert moved == after.experts
        naive = sum(a != b for old, new in zip(before.experts, wanted.experts)
                    for a, b in zip(old, new))
        assert len(moves) <= naive
        assert before.moves_to(before)[1] == []


def test_parts_that_change_places_do_not_move():
    """The same placement with its nodes, ranks and replicas in another order."""
    before = place([[9, 5, 4, 3, 2, 2, 1, 1]], 16, 8, num_nodes=2, num_groups=2)
    experts = before.experts[0]
    shuffled = experts[8:] + experts[:8]
    shuffled = shuffled[2:8] + shuffled[:2] + shuffled[8:]
    shuffled[0], shuffled[1] = shuffled[1], shuffled[0]
    other = weft.balance.Placement([shuffled], before.imbalance, 8, 8, 2)
    assert before.moves_to(other) == (before, [])


@pytest.mark.parametrize("text, arguments", [
    ("num_experts is 3, must be a multiple of num_groups = 2", dict(num_groups=2)),
    ("num_replicas is 4, must be a multiple of num_ranks = 3", dict(num_ranks=3)),
    ("num_replicas is 2, allowed are 3..65536", dict(num_replicas=2, num_ranks=2)),
    ("num_ranks is 4, must be a multiple of num_nodes = 3", dict(num_nodes=3)),
    (r"loads\[0\]\[1\] is -1, must be finite and not negative", dict(loads=[[1, -1, 1]])),
    ("mode is 7", dict(mode=7)),
])
def test_refusals(text, arguments):
    given = {"loads": [[1, 2, 3]], "num_replicas": 4, "num_ranks": 4, **arguments}
    with pytest.raises(weft.InvalidArgumentError, match=text):
        place(**given)


def test_placements_that_lack_an_expert():
    placement = weft.balance.Placement([[0, 1, 1, 1]], [1.0], 3, 4, 1)
    with pytest.raises(weft.InvalidArgumentError, match="has no replica of expert 2"):
        placement.expert_ranks(0)
    with pytest.raises(weft.InvalidArgumentError, match=r"from\[0\]\[3\] is 4, allowed are 0..2"):
        weft.balance.Placement([[0, 1, 2, 4]], [1.0], 3, 4, 1).moves_to(placement)


def test_no_load_is_balanced():
    assert place([[0, 0, 0, 0]], 8, 4).imbalance == [1.0]


GRANULES = weft.abi.BALANCE_GRANULES


def with_spare(num_experts, num_ranks, num_spare):
    """The default placement of experts; each rank has spare replicas behind its own."""
    share = num_experts // num_ranks
    return [expert for rank in range(num_ranks)
            for expert in [*range(rank * share, (rank + 1) * share), *[-1] * num_spare]]


def check_filled(loads, base, filled, num_ranks):
    """Returns how many copies there are, and the largest granule. Granules go to replicas of their
    expert; what was there has stayed; copies serve; no rank has two of an expert."""
    length = len(base) // num_ranks
    ranks = [0.0] * num_ranks
    for i, replica in enumerate(filled.granules[0]):
        assert filled.experts[0][replica] == i // GRANULES
        ranks[replica // length] += loads[i // GRANULES] / GRANULES
    for replica, (before, after) in enumerate(zip(base, filled.experts[0])):
        assert after == before or before == -1
        assert before == after or replica in filled.granules[0]
    for first in range(0, len(base), length):
        placed = [expert for expert in filled.experts[0][first:first + length] if expert >= 0]
        assert len(placed) == len(set(placed))
    mean = sum(loads) / num_ranks
    assert filled.imbalance[0] == pytest.approx(max(ranks) / mean, rel=1e-5)
    return sum(a != b for a, b in zip(base, filled.experts[0])), max(loads) / GRANULES / mean


def test_fill_keeps_its_rules():
    drawn = random.Random(2)
    for _ in range(300):
        num_ranks = drawn.randint(1, 12)
        share, num_spare = drawn.randint(1, 6), drawn.randint(0, 3)
        base = with_spare(num_ranks * share, num_ranks, num_spare)
        loads = [float(int(drawn.paretovariate(1.2))) for _ in range(num_ranks * share)]
        target = drawn.choice([0, 1, 1.2])
        filled = fill([loads], [base], num_ranks, target_imbalance=target)
        num_copies, granule = check_filled(loads, base, filled, num_ranks)
        before = fill([loads], [base], num_ranks, target_imbalance=1e6)
        assert before.experts == [base] and filled.imbalance <= before.imbalance
        if num_copies < num_ranks * num_spare and num_spare >= share * num_ranks:
            assert filled.imbalance[0] <= max(target, 1.01) + granule
        assert filled == fill([loads], [base], num_ranks, target_imbalance=target)


def test_fill_shares_what_is_there():
    """Two replicas of an expert have half of its granules each, and need no copy."""
    assert fill([[8, 8]], [[0, 0, 1, -1]], 2).granules == [[0] * 8 + [1] * 8 + [2] * 16]
    filled = fill([[8, 4]], [[0, -1, 1, 0]], 2)  # both have expert 0: 6 and 6
    assert filled.experts == [[0, -1, 1, 0]] and filled.imbalance == [1.0]
    assert filled.granules[0].count(0) == 12 and filled.granules[0].count(3) == 4


def test_fill_gives_no_rank_more_than_its_share_and_a_granule():
    """With a spare replica for each expert there is always room."""
    drawn = random.Random(3)
    for _ in range(100):
        num_ranks, share = drawn.randint(2, 8), drawn.randint(1, 4)
        base = with_spare(num_ranks * share, num_ranks, num_ranks * share)
        loads = [drawn.expovariate(1) ** 3 for _ in range(num_ranks * share)]
        filled = fill([loads], [base], num_ranks, target_imbalance=1)
        _, granule = check_filled(loads, base, filled, num_ranks)
        assert filled.imbalance[0] <= 1 + granule + 1e-5


def test_fill_evens_real_traces():
    path = HERE.parents[2] / "shared/data/dsv2lite-esft.loads.txt"
    if not path.exists():
        pytest.skip("the traces are not there")
    texts = collections.defaultdict(list)
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            name, _, *loads = line.split()
            texts[name].append([float(load) for load in loads])
    for num_ranks in (4, 8, 16, 32):
        for layers in texts.values():
            base = [with_spare(64, num_ranks, 2)] * len(layers)
            imbalance = fill(layers, base, num_ranks).imbalance
            assert statistics.median(imbalance) <= 1.05 and max(imbalance) <= 1.15


@pytest.mark.parametrize("text, arguments", [
    (r"experts\[0\]\[2\] is 2, allowed are -1..1", dict(experts=[[0, 1, 2, -1]])),
    (r"experts\[0\]\[3\] is -2, allowed are -1..1", dict(experts=[[0, 1, -1, -2]])),
    (r"experts\[0\] has no replica of expert 1", dict(experts=[[0, 0, -1, -1]])),
    ("target_imbalance is 0.5, must be 1 or more, or 0", dict(target_imbalance=0.5)),
    ("target_imbalance is nan", dict(target_imbalance=float("nan"))),
    ("num_replicas is 4, must be a multiple of num_ranks = 3", dict(num_ranks=3)),
    (r"loads\[0\]\[1\] is -1", dict(loads=[[1, -1]])),
    (r"experts must be \[1\]\[replicas\]", dict(experts=[])),
])
def test_fill_refuses(text, arguments):
    given = {"loads": [[1, 2]], "experts": [[0, -1, 1, -1]], "num_ranks": 2, **arguments}
    with pytest.raises(weft.InvalidArgumentError, match=text):
        fill(**given)


def test_no_load_needs_no_copies():
    assert fill([[0, 0]], [[0, -1, 1, -1]], 2).experts == [[0, -1, 1, -1]]
