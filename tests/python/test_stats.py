# SPDX-License-Identifier: MIT
"""What a communicator did: totals, waits, the slowest rank, the flight record."""
import json
import re
import time

import pytest
import weft
from ranks import on_ranks, run


@on_ranks(2)
def test_stats(comm, tmp_path):
    before = comm.stats().num_issued
    for _ in range(60):
        if comm.rank == 1:
            time.sleep(0.01)
        comm.barrier()
    stats = comm.stats()
    assert stats.num_issued == before + 60 and stats.num_failed == 0
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


def parse(text):
    """The samples of a file of metrics: by Prometheus' own parser, if it is there."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        label = r'\w+="(?:[^"\\\n]|\\.)*"'
        line = re.compile(rf"(\w+)\{{({label}(?:,{label})*)\}} (\S+)")
        comment = re.compile(r"# (HELP \w+ .+|TYPE \w+ (counter|gauge|histogram))")
        assert text.endswith("\n")
        found = [line.fullmatch(x) for x in text.splitlines() if not comment.fullmatch(x)]
        assert all(found), text
        return [(m[1], dict(x.split("=") for x in m[2].replace('"', "").split(",")), float(m[3]))
                for m in found]
    return [(s.name, s.labels, s.value) for family in text_string_to_metric_families(text)
            for s in family.samples]


def test_metrics(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_METRICS", str(tmp_path))

    def work(comm):
        for _ in range(5):
            comm.barrier()
        comm.host_barrier()
        if comm.rank == 1:
            time.sleep(0.3)
        comm.barrier()

    run(work, 2)
    for rank in (0, 1):
        path, = tmp_path.glob(f"weft.*.{rank}.prom")
        samples = parse(path.read_text())
        assert all(labels["rank"] == str(rank) for _, labels, _ in samples)
        value = {(name, labels.get("operation", labels.get("peer")), labels.get("le")): value
                 for name, labels, value in samples}
        assert len(value) == len(samples)
        assert value["weft_operations_total", "weft_comm_barrier", None] == 6
        assert value["weft_operation_failures_total", "weft_comm_barrier", None] == 0
        assert value["weft_peer_last_total", "1", None] >= 1
        assert value["weft_peer_late_seconds_total", "1", None] > 0.02
        peer = str(1 - rank)
        buckets = [v for (name, p, _), v in value.items()
                   if name == "weft_peer_wait_seconds_bucket" and p == peer]
        assert len(buckets) == 16 and buckets == sorted(buckets)
        assert buckets[-1] == value["weft_peer_wait_seconds_count", peer, None]
        assert rank == 1 or value["weft_peer_wait_seconds_sum", peer, None] > 0.02
        assert value["weft_communicator_failed", None, None] == 0
        assert value["weft_heap_committed_bytes", None, None] >= \
            value["weft_heap_used_bytes", None, None] > 0
