# SPDX-License-Identifier: MIT
"""Placing experts by their loads, the moves from one placement to the next, and copies of experts
for one step (weft_balance.h).

Everything is local and the same on all ranks that have the same loads. Sequences of sequences, also
arrays, come in; lists come out.
"""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from . import abi
from .abi import BalanceMode, MoveDistance
from .library import InvalidArgumentError, check, lib


@dataclass(frozen=True)
class Placement:
    """experts [layers][replicas]: the expert of each replica; each rank has as many replicas.
    imbalance [layers]: the load of the busiest rank over the mean."""

    experts: list[list[int]]
    imbalance: list[float]
    num_experts: int
    num_ranks: int
    num_nodes: int

    def expert_ranks(self, layer: int) -> list[list[int]]:
        """The ranks of each expert of a layer, as ExpertParallel takes them."""
        offsets = (ctypes.c_int32 * (self.num_experts + 1))()
        ranks = (ctypes.c_int32 * len(self.experts[layer]))()
        check(lib.weft_balance_ranks(ctypes.byref(self._config()),
                                     _numbers([self.experts[layer]]), offsets, ranks))
        return [ranks[begin:end] for begin, end in zip(offsets, offsets[1:])]

    def moves_to(self, other: Placement) -> tuple[Placement, list[Move]]:
        """`other` with its parts where they already are, and the moves to it, the nearest first."""
        to, num_moves = _numbers(other.experts), ctypes.c_int32()
        moves = (abi.ExpertMove * max(1, len(to)))()
        for move in moves:
            move.size = ctypes.sizeof(abi.ExpertMove)
        check(lib.weft_balance_moves(ctypes.byref(self._config()), _numbers(self.experts), to,
                                     moves, len(moves), ctypes.byref(num_moves)))
        rearranged = Placement(_rows(to, len(other.experts)), other.imbalance, other.num_experts,
                               other.num_ranks, other.num_nodes)
        return rearranged, [Move(move.layer, move.expert, move.from_replica, move.to_replica,
                                 MoveDistance(move.distance))
                            for move in moves[:num_moves.value]]

    def _config(self) -> abi.BalanceConfig:
        return abi.BalanceConfig(num_layers=len(self.experts), num_experts=self.num_experts,
                                 num_replicas=len(self.experts[0]), num_ranks=self.num_ranks,
                                 num_nodes=self.num_nodes)


@dataclass(frozen=True)
class Move:
    """The weights of an expert go from a replica of one placement to one of the next."""

    layer: int
    expert: int
    from_replica: int
    to_replica: int
    distance: MoveDistance


def _numbers(rows: Sequence[Sequence[int]]) -> ctypes.Array:
    flat = [int(number) for row in rows for number in row]
    return (ctypes.c_int32 * len(flat))(*flat)


def _rows(numbers: ctypes.Array, num_rows: int) -> list[list[int]]:
    flat, length = list(numbers), len(numbers) // num_rows
    return [flat[row * length:(row + 1) * length] for row in range(num_rows)]


def _shape(loads: Sequence[Sequence[float]]) -> tuple[int, int]:
    if len(loads) == 0 or any(len(row) != len(loads[0]) for row in loads):
        raise InvalidArgumentError("loads must be [layers][experts], with a layer or more")
    return len(loads), len(loads[0])


def _loads(loads: Sequence[Sequence[float]]) -> ctypes.Array:
    flat = [float(load) for row in loads for load in row]
    return (ctypes.c_float * len(flat))(*flat)


def place(loads: Sequence[Sequence[float]], num_replicas: int, num_ranks: int, *,
          num_nodes: int = 1, num_groups: int = 1,
          mode: BalanceMode = BalanceMode.BEST) -> Placement:
    """Places the experts of each layer: loads [layers][experts] say how many tokens choose each."""
    num_layers, num_experts = _shape(loads)
    config = abi.BalanceConfig(num_layers=num_layers, num_experts=num_experts,
                               num_replicas=num_replicas, num_ranks=num_ranks,
                               num_nodes=num_nodes, num_groups=num_groups, mode=mode)
    experts = (ctypes.c_int32 * max(1, num_layers * num_replicas))()
    imbalance = (ctypes.c_float * num_layers)()
    check(lib.weft_balance_place(ctypes.byref(config), _loads(loads), experts, imbalance))
    return Placement(_rows(experts, num_layers), list(imbalance), num_experts, num_ranks,
                     num_nodes)


@dataclass(frozen=True)
class Filled:
    """A placement for one step. experts [layers][replicas]: the expert of each replica, also of
    copies; -1: a replica that has stayed spare. granules [layers][experts * BALANCE_GRANULES]: the
    replica that serves each granule of each expert's tokens. imbalance [layers]: the load of the
    busiest rank over the mean."""

    experts: list[list[int]]
    granules: list[list[int]]
    imbalance: list[float]


def fill(loads: Sequence[Sequence[float]], experts: Sequence[Sequence[int]], num_ranks: int, *,
         target_imbalance: float = 0) -> Filled:
    """Copies of experts for one step: loads [layers][experts] say how many tokens of the step
    choose each. experts [layers][replicas] has the expert of each replica; -1: a spare one, which
    may get a copy. Ranks get at most target_imbalance times the mean, 1.01 if it is 0, as far as
    there is room."""
    num_layers, num_experts = _shape(loads)
    if len(experts) != num_layers or any(len(row) != len(experts[0]) for row in experts):
        raise InvalidArgumentError(f"experts must be [{num_layers}][replicas]")
    config = abi.BalanceConfig(num_layers=num_layers, num_experts=num_experts,
                               num_replicas=len(experts[0]), num_ranks=num_ranks,
                               target_imbalance=target_imbalance)
    filled = _numbers(experts)
    granules = (ctypes.c_int32 * (num_layers * num_experts * abi.BALANCE_GRANULES))()
    imbalance = (ctypes.c_float * num_layers)()
    check(lib.weft_balance_fill(ctypes.byref(config), _loads(loads), filled, granules, imbalance))
    return Filled(_rows(filled, num_layers), _rows(granules, num_layers), list(imbalance))
