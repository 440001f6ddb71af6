# SPDX-License-Identifier: MIT
"""PyTorch for tests whose ranks are forked, and ranks with a group of gloo. Tests that import this
are skipped without PyTorch."""
import os
import tempfile

import pytest
from ranks import on_ranks, run

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # before ranks are forked


def in_group(function, num_ranks, dies=None, **environment):
    """function(the group) on each rank, of which one may die."""
    with tempfile.TemporaryDirectory() as folder:
        def be_rank(comm):
            os.environ |= {"WEFT_MACHINE": "cpu"} | environment
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{folder}/meet", rank=comm.rank, world_size=num_ranks)
            result = function(torch.distributed.group.WORLD)
            if dies is None:
                comm.host_barrier()  # rank 0 serves
                torch.distributed.destroy_process_group()
            return result

        return run(be_rank, num_ranks, dies=dies)


def on_group(num_ranks=None, **environment):
    """As on_ranks, with the group in place of the communicator."""
    return on_ranks(num_ranks, runs=in_group, **environment)


class One:
    """A group of one rank."""

    def Get_rank(self):  # noqa: N802
        return 0

    def Get_size(self):  # noqa: N802
        return 1

    def allgather(self, item):
        return [item]
