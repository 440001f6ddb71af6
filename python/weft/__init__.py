# SPDX-License-Identifier: MIT
"""weft carries the tokens of mixture-of-experts layers to their experts on other ranks and back,
and sums, gathers and exchanges tensors. docs/python.md is the introduction.

    import numpy as np, weft

    with weft.Communicator.from_env() as comm:
        x = np.full(1000, comm.rank, np.float32)
        print(weft.Collectives(comm).all_reduce(x)[0])
"""
from . import ownership

ownership.check(__path__[0])

from . import balance, copies, gate, one_sided, rows  # noqa: E402
from .abi import (Algorithm, BalanceMode, Collective, CollReason, Dtype, EpOrder,
                  GateGroupScore, GateScore, GateWeights, LlAnswer, LlCarrier, LlLayout,
                  LlOnMissing, LlPhases, LlRoute, Machine, ReduceOp, Result, ScaleKind, Team)
from .collectives import CollectiveRecord, Collectives
from .communicator import (Arena, Communicator, query_device, query_machine, rendezvous_num_ranks,
                           serve_rendezvous, unique_id, unique_id_at)
from .expansion import Expanded
from .expert_parallel import Counts, DeviceCounts, ExpertParallel, Handle, Layout, Received
from .library import (AbortedError, CapacityError, Error, InvalidArgumentError, MismatchError,
                      OutOfMemoryError, RankFailedError, UnsupportedError, WaitTimeoutError,
                      version)
from .low_latency import LowLatency, Rows, RowSignals, Slots
from .streams import Event, Graph, Stream

__version__ = ".".join(map(str, version()))

__all__ = [
    "AbortedError", "Algorithm", "Arena", "BalanceMode", "CapacityError", "CollReason",
    "Collective", "CollectiveRecord", "Collectives", "Communicator", "Counts", "DeviceCounts",
    "Dtype", "EpOrder", "Error", "Event", "Expanded", "ExpertParallel", "GateGroupScore",
    "GateScore", "GateWeights", "Graph", "Handle", "InvalidArgumentError", "Layout", "LlAnswer",
    "LlCarrier", "LlLayout", "LlOnMissing", "LlPhases", "LlRoute", "LowLatency", "Machine",
    "MismatchError", "OutOfMemoryError", "RankFailedError", "Received", "ReduceOp", "Result",
    "RowSignals", "Rows", "ScaleKind", "Slots", "Stream", "Team", "UnsupportedError",
    "WaitTimeoutError", "balance", "copies", "gate", "one_sided", "query_device", "query_machine",
    "rendezvous_num_ranks", "rows", "serve_rendezvous", "unique_id", "unique_id_at", "version",
]
