# SPDX-License-Identifier: MIT
"""What a communicator did: totals, waits, the slowest rank, the flight record."""
import json
import time

import pytest
import weft
from ranks import run


def test_stats(tmp_path):
    def look(comm):
        before = comm.stats().num_issued
        for _ in range(60):
            if comm.rank == 1:
                time.sleep(0.003)
            comm.barrier()
        stats = comm.stats()
        assert stats.num_issued == before + 60 and stats.num_failed == 0
        assert stats.num_done == stats.num_issued
        slowest = comm.slowest()
        assert (slowest.rank, slowest.call) == (1, b"weft_comm_barrier")
        assert slowest.num_late <= slowest.num_operations and slowest.late_ns > 1e6
        assert comm.peer_stats(1).num_last >= slowest.num_late
        assert sum(comm.peer_stats(1).waits_by_time) == comm.peer_stats(1).num_waits
        with pytest.raises(weft.InvalidArgumentError, match="rank is 2"):
            comm.peer_stats(2)
        path = tmp_path / f"{comm.rank}.json"
        comm.write_records(path)
        record = json.loads(path.read_text())
        assert record["rank"] == comm.rank and record["slowest"]["rank"] == 1
        assert record["entries"][-1]["profiling_name"] == "weft_comm_barrier"
        with pytest.raises(weft.InvalidArgumentError, match="WEFT_RECORD"):
            comm.write_records()

    run(look, 2)
