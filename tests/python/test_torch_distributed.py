# SPDX-License-Identifier: MIT
"""torch.distributed's backend "weft": each operation, and what is built on them; skipped without
PyTorch. torch_suite.py runs PyTorch's own tests."""
import importlib
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
from datetime import timedelta

import pytest
import weft
import weft_torch_backend
from ranks import LIMIT_S, launch, run
from torch_ranks import torch

import torch.distributed.tensor  # for torch.testing: once, before ranks are forked

dist = torch.distributed

ARITHMETIC = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
              torch.bfloat16, torch.float32, torch.float64]
OTHERS = [torch.bool, torch.complex64, torch.float8_e5m2, torch.float8_e4m3fn]
OPS = ["SUM", "PRODUCT", "MIN", "MAX"]


def with_groups(function, num_ranks=2, timeout_s=60, backend="weft"):
    """function() on ranks whose default group is weft's, or of `backend`."""
    with tempfile.TemporaryDirectory() as folder:
        def be_rank(comm):
            dist.init_process_group(backend, init_method=f"file://{folder}/meet", rank=comm.rank,
                                    world_size=num_ranks, timeout=timedelta(seconds=timeout_s))
            result = function()
            comm.host_barrier()  # rank 0 serves
            dist.destroy_process_group()
            return result

        importlib.import_module("weft.torch_group")  # once, before the ranks are forked
        weft_torch_backend.register()
        return run(be_rank, num_ranks)


def some(shape, dtype, rank):
    """Numbers that are exact in any type, and differ by rank."""
    numbers = (torch.arange(1, torch.Size(shape).numel() + 1) * (rank + 2)) % 5
    return numbers.reshape(shape).to(dtype)


def expect(group, dtype, shape, op):
    rows = [some(shape, dtype, rank) for rank in range(group)]
    total = rows[0].clone()
    for row in rows[1:]:
        total = {"SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum,
                 "MAX": torch.maximum, "BAND": torch.bitwise_and, "BOR": torch.bitwise_or,
                 "BXOR": torch.bitwise_xor}[op](total, row)
    return total


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_reductions(num_ranks):
    """Of every type, by every operation, whether weft has it or not."""
    def use():
        rank = dist.get_rank()
        cases = [(dtype, op) for dtype in ARITHMETIC for op in OPS]
        cases += [(dtype, op) for dtype in [torch.int32, torch.uint8, torch.int16, torch.bool]
                  for op in ["BAND", "BOR", "BXOR"]]
        cases += [(torch.bool, op) for op in OPS] + [(torch.complex64, "SUM")]
        for dtype, name in cases:
            op = getattr(dist.ReduceOp, name)
            x = some((3, 5), dtype, rank)
            dist.all_reduce(x, op)
            assert torch.equal(x, expect(num_ranks, dtype, (3, 5), name)), (dtype, name)
            x = some((3, 5), dtype, rank).t()  # not dense
            dist.reduce(x, 1, op)
            if rank == 1:
                assert torch.equal(x.t(), expect(num_ranks, dtype, (3, 5), name)), (dtype, name)
            total, out = expect(num_ranks, dtype, (num_ranks, 4), name), torch.empty(4, dtype=dtype)
            dist.reduce_scatter_tensor(out, some((num_ranks, 4), dtype, rank), op)
            assert torch.equal(out, total[rank]), (dtype, name)
            out = torch.empty(4, dtype=dtype)
            dist.reduce_scatter(out, list(some((num_ranks, 4), dtype, rank)), op)
            assert torch.equal(out, total[rank]), (dtype, name)
        x = torch.full((4,), rank + 1.0)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        assert torch.equal(x, torch.full((4,), (num_ranks + 1) / 2))
        x = torch.full((4,), rank + 1.0)
        dist.all_reduce(x, dist._make_nccl_premul_sum(2.0 ** rank))
        assert x[3] == sum((r + 1) * 2 ** r for r in range(num_ranks))
        x = torch.eye(3).to_sparse() * (rank + 1)
        dist.all_reduce(x)
        assert torch.equal(x.to_dense(), torch.eye(3) * num_ranks * (num_ranks + 1) / 2)

    with_groups(use, num_ranks)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_moves(num_ranks):
    """Of every type, dense or not, of sizes that differ by rank."""
    def use():
        rank = dist.get_rank()
        for dtype in ARITHMETIC + OTHERS:
            def same(got, wanted, what):
                as_bytes = [x.contiguous().view(-1).view(torch.uint8) for x in (got, wanted)]
                assert torch.equal(*as_bytes), (dtype, what)

            def of(r):
                return some((4, 3), dtype, r)

            x = of(rank).t().contiguous().t()
            dist.broadcast(x, 1)
            same(x, of(1), "broadcast")
            rows = torch.empty((num_ranks, 4, 3), dtype=dtype)
            dist.all_gather_into_tensor(rows, of(rank))
            same(rows, torch.stack([of(r).view(torch.uint8) for r in range(num_ranks)]), "gather")
            for got in ([torch.empty((4, 3), dtype=dtype) for _ in range(num_ranks)],
                        list(torch.empty((num_ranks, 4, 3), dtype=dtype))):
                dist.all_gather(got, of(rank))
                for r in range(num_ranks):
                    same(got[r], of(r), "all_gather")
            got = [torch.empty((r + 1, 3), dtype=dtype) for r in range(num_ranks)]
            dist.all_gather(got, some((rank + 1, 3), dtype, rank))
            for r in range(num_ranks):
                same(got[r], some((r + 1, 3), dtype, r), "all_gather of uneven sizes")
            got = [torch.empty((4, 3), dtype=dtype) for _ in range(num_ranks)]
            dist.gather(of(rank), got if rank == 1 else None, 1)
            for r in range(num_ranks) if rank == 1 else ():
                same(got[r], of(r), "gather")
            out = torch.empty((4, 3), dtype=dtype)
            dist.scatter(out, [of(r + 7) for r in range(num_ranks)] if rank == 1 else None, 1)
            same(out, of(rank + 7), "scatter")
            out = torch.empty((num_ranks, 3), dtype=dtype)
            dist.all_to_all_single(out, some((num_ranks, 3), dtype, rank))
            for r in range(num_ranks):
                same(out[r], some((num_ranks, 3), dtype, r)[rank], "all_to_all")
            sent, received = [[dist_rows(s, r) for s, r in pairs] for pairs in (
                [(rank, r) for r in range(num_ranks)], [(r, rank) for r in range(num_ranks)])]
            out = torch.empty((sum(received), 3), dtype=dtype)
            dist.all_to_all_single(out, some((sum(sent), 3), dtype, rank), received, sent)
            begin = 0
            for r in range(num_ranks):
                before = sum(dist_rows(r, q) for q in range(rank))
                all_of_it = some((sum(dist_rows(r, q) for q in range(num_ranks)), 3), dtype, r)
                same(out[begin:begin + received[r]], all_of_it[before:before + received[r]], "v")
                begin += received[r]
            got = [torch.empty(r + 1, dtype=dtype) for r in range(num_ranks)]
            dist.all_to_all(got, [some((rank + 1,), dtype, rank + r) for r in range(num_ranks)])
            for r in range(num_ranks):
                same(got[r], some((r + 1,), dtype, r + rank), "all_to_all of a list")
        everybody = [None] * num_ranks
        dist.all_gather_object(everybody, {"rank": rank})
        assert everybody == [{"rank": r} for r in range(num_ranks)]

    with_groups(use, num_ranks)


def dist_rows(source, target):
    """How many rows one rank sends another; some send none."""
    return (2 * source + target) % 4


def test_large_uneven():
    """More than the memory that weft has for such."""
    def use():
        num_rows = 5 << 20
        sent = torch.full((num_rows,), float(dist.get_rank()))
        got = torch.empty(num_rows)
        splits = [1, num_rows - 1] if dist.get_rank() == 0 else [num_rows - 1, 1]
        splits_back = [1, num_rows - 1] if dist.get_rank() == 0 else [num_rows - 1, 1]
        dist.all_to_all_single(got, sent, splits_back, splits)
        assert torch.equal(got.sum(), torch.tensor(
            float(num_rows - 1) if dist.get_rank() == 0 else 1.0))

    with_groups(use)


def test_asynchronous():
    """Works that may not have finished: wait(), is_completed(), futures, and what follows them."""
    def use():
        rank = dist.get_rank()
        works, tensors = [], [torch.full((1 << 16,), float(i)) for i in range(8)]
        for x in tensors:
            works.append(dist.all_reduce(x, async_op=True))
        later = works[3].get_future().then(lambda done: done.value()[0] * 2)
        assert torch.equal(later.wait()[:2], torch.tensor([12.0, 12.0]))
        for i, (work, x) in enumerate(zip(works, tensors)):
            assert work.wait() and work.is_completed() and work.is_success()
            assert work.result()[0] is x and x[-1] == 2 * i
        got = [torch.zeros(3) for _ in range(2)]
        work = dist.all_gather(got, torch.full((3,), float(rank)), async_op=True)
        while not work.is_completed():
            pass
        assert got[1][2] == 1  # by copies that are done by then

        def again(done):  # a future whose work another thread waits for
            return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]

        x = torch.ones(4)
        assert dist.all_reduce(x, async_op=True).get_future().then(again).wait()[0] == 4
        for name in ("all_reduce", "broadcast"):  # nobody holds the tensor, or the work
            call = getattr(dist, name)
            call(torch.ones(1 << 16), **({"src": 0} if name == "broadcast" else {}), async_op=True)
        with dist._coalescing_manager(async_ops=True) as manager:
            for x in tensors:
                dist.all_reduce(x)
        manager.wait()
        assert tensors[5][0] == 20

    with_groups(use)


def test_messages():
    """Tags in another order, any source, more than slots hold, no deadlock between two that receive
    first, while others compute; a wrong size names the rank."""
    def use():
        rank = dist.get_rank()
        big = [torch.full((1 << 20,), float(rank)), torch.empty(1 << 20)]
        small = [torch.full((3,), float(rank)), torch.empty(3)]
        peer = 1 - rank
        if rank < 2:
            receiving = dist.irecv(big[1], peer, tag=1)
            works = [dist.isend(small[0], peer, tag=2), dist.isend(big[0], peer, tag=1)]
            dist.recv(small[1], peer, tag=2)
            receiving.wait()
            assert big[1].eq(peer).all() and small[1].eq(peer).all()
            assert all(work.wait() for work in works) and receiving.is_completed()
        sending = dist.isend(big[0], 1) if rank == 0 else None
        got = torch.empty(1 << 20)
        if rank == 1:
            dist.recv(got, 0)
        dist.barrier()  # rank 0 sends meanwhile
        if rank == 0:
            sending.wait()
            froms = {dist.recv(got), dist.recv(got)}
            assert froms == {1, 2}
            dist.send(torch.ones(2), 1)
            dist.send(torch.empty(0), 1)
        else:
            dist.send(torch.full((1 << 20,), float(rank)), 0)
        if rank == 1:
            with pytest.raises(weft.MismatchError, match="from rank 0.*8 bytes were sent") as told:
                dist.recv(torch.empty(3), 0)
            assert told.value.rank == 0
            dist.recv(torch.empty(0), 0)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.irecv, small[1], (rank - 1) % 3),
            dist.P2POp(dist.isend, small[0], (rank + 1) % 3)])
        for work in works:
            work.wait()
        assert small[1].eq((rank - 1) % 3).all()

    with_groups(use, 3)


def test_groups():
    """Subgroups by new_group and split_group, some ranks in none; monitored_barrier."""
    def use():
        rank = dist.get_rank()
        group = dist.new_group([2, 1], timeout=timedelta(seconds=40))
        if rank > 0:
            x = torch.ones(2) * rank
            dist.all_reduce(x, group=group)
            assert x[0] == 3 and dist.get_backend(group) == "weft"
        part = dist.split_group(split_ranks=[[0, 2]])
        if rank == 1:
            assert part is dist.GroupMember.NON_GROUP_MEMBER
        else:
            work = dist.all_gather_into_tensor(y := torch.empty(2), torch.tensor([float(rank)]),
                                               group=part, async_op=True)
            work.wait()
            assert work.is_completed() and y.tolist() == [0, 2]
        dist.monitored_barrier()
        if rank == 0:
            with pytest.raises(RuntimeError, match="Rank 1 failed to pass monitoredBarrier in 300"):
                dist.monitored_barrier(timeout=timedelta(milliseconds=300))
        elif rank == 2:
            with pytest.raises(RuntimeError, match="Rank 2 successfully reached.*Rank 1 failed"):
                dist.monitored_barrier(timeout=timedelta(seconds=5))

    with_groups(use, 3)


def test_failures():
    """The timeout of a group is weft's, and its error names the rank; so does that of a receive."""
    def use():
        group = dist.new_group(timeout=timedelta(seconds=1))
        if dist.get_rank() == 0:
            with pytest.raises(weft.WaitTimeoutError, match="Timed out.* rank 1 ") as told:
                dist.all_reduce(torch.ones(2), group=group)
            assert told.value.rank == 1
        group = dist.new_group(timeout=timedelta(seconds=1))
        dist.all_reduce(torch.ones(2), group=group)
        if dist.get_rank() == 0:
            work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
            with pytest.raises(weft.WaitTimeoutError, match="Timed out.* rank 1 "):
                work.wait()
            assert not work.is_success()
        group = dist.new_group(timeout=timedelta(seconds=1))
        if dist.get_rank() == 0:
            with pytest.raises(weft.WaitTimeoutError, match="receive from rank 1, tag 4"):
                dist.recv(torch.ones(2), 1, tag=4, group=group)
        with pytest.raises(weft.InvalidArgumentError, match="output is torch.float32.*2 times"):
            dist.all_gather_into_tensor(torch.empty(3), torch.empty(2))

    with_groups(use)


def test_threads():
    """Two threads, each with a group of its own, at the same time."""
    def use():
        groups, failures = [dist.new_group() for _ in range(2)], []

        def work(group, value):
            for _ in range(100):
                x = torch.full((100,), float(value))
                dist.all_reduce(x, group=group)
                if not x.eq(2 * value).all():
                    failures.append(value)

        threads = [threading.Thread(target=work, args=(group, i)) for i, group in enumerate(groups)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures

    with_groups(use)


def train(wrap):
    """Two steps of a small model; the parameters after them, as of one process."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    wrapped = wrap(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(step))
        rank, num_ranks = dist.get_rank(), dist.get_world_size()
        mine = x.chunk(num_ranks)[rank] if wrap is not str else x
        wrapped(mine).square().mean().backward()
        optimizer.step()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in wrapped.parameters()]


def test_models():
    """DDP, FSDP2, DTensor and tensor parallelism give the parameters of one process."""
    def use():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                       parallelize_module)
        from torch.nn.parallel import DistributedDataParallel

        torch.manual_seed(1)
        alone = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        optimizer = torch.optim.SGD(alone.parameters(), lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            x = torch.randn(6, 8, generator=torch.Generator().manual_seed(step))
            alone(x).square().mean().backward()
            optimizer.step()
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for wrap in (DistributedDataParallel, lambda model: fully_shard(model, mesh=mesh)):
            for got, wanted in zip(train(wrap), alone.parameters()):
                torch.testing.assert_close(got, wanted)
        whole = torch.arange(12.0).reshape(4, 3)
        shards = distribute_tensor(whole, mesh, [Shard(0)])
        assert isinstance(shards, DTensor)
        assert torch.equal(shards.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
        assert torch.equal(shards.redistribute(mesh, [Replicate()]).to_local(), whole)
        parallel = parallelize_module(
            torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)),
            mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        with torch.no_grad():
            for got, wanted in zip(parallel.parameters(), alone.parameters()):
                got.copy_(distribute_tensor(wanted.detach(), mesh, got.placements))
        x = torch.randn(5, 8, generator=torch.Generator().manual_seed(9))
        torch.testing.assert_close(parallel(x), alone(x))

    with_groups(use)


def test_checkpoint():
    """torch.distributed.checkpoint, also asynchronous, to another number of ranks."""
    import torch.distributed.checkpoint as dcp

    def save(folder):
        def use():
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.tensor import Shard, distribute_tensor

            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            state = {"x": distribute_tensor(torch.arange(12.0), mesh, [Shard(0)]), "step": 3}
            dcp.save(state, checkpoint_id=folder)
            empty = {"x": distribute_tensor(torch.zeros(12), mesh, [Shard(0)]), "step": 0}
            dcp.load(empty, checkpoint_id=folder)
            assert empty["step"] == 3 and torch.equal(empty["x"].full_tensor(), torch.arange(12.0))
        return use

    def load(folder):
        def use():
            state = {"x": torch.zeros(12), "step": 0}
            dcp.load(state, checkpoint_id=folder)
            assert state["step"] == 3 and torch.equal(state["x"], torch.arange(12.0))
        return use

    with tempfile.TemporaryDirectory() as folder:
        with_groups(save(folder))
        with_groups(load(folder), 3)


def test_beside_another_backend():
    """As one of several backends, below PyTorch's checks, and below a mode that sees operations."""
    def use():
        from torch.distributed.tensor.debug import CommDebugMode

        with CommDebugMode() as mode:
            dist.all_reduce(torch.ones(2))
        assert mode.get_total_counts() == 1
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        dist.set_debug_level_from_env()
        group = dist.new_group(backend="weft")
        x = torch.ones(2)
        dist.all_reduce(x, group=group)
        assert x[0] == 2
        mixed = dist.new_group(backend="cpu:weft,cuda:gloo")
        dist.all_reduce(x, group=mixed, async_op=True).wait()
        assert x[0] == 4
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = "OFF"
        dist.set_debug_level_from_env()

    with_groups(use)


def test_without_import():
    """PyTorch finds the backend by its entry point, in a process that has not imported weft."""
    script = """if True:
        import sys
        import torch.distributed as dist
        assert "weft" not in sys.modules
        dist.init_process_group("weft", store=dist.HashStore(), rank=0, world_size=1)
        assert dist.get_backend() == "weft"
        dist.destroy_process_group()
        """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr


def test_train_moe(tmp_path):
    """Losses do not depend on the number of ranks, nor on where experts are, nor on a stop between,
    nor much on rounding."""
    text, script = tmp_path / "text", tmp_path / "train_moe.py"
    text.write_bytes(random.Random(1).randbytes(1000) * 5)
    # The same code with a smaller model, which takes a third of the time.
    published = pathlib.Path(__file__, "../../../examples/train_moe.py").resolve().read_text()
    small = re.sub("(HIDDEN, HEADS, LAYERS, WINDOW = ).*", r"\g<1>48, 2, 2, 64", published)
    small = re.sub("(NGRAM_HIDDEN = .*) 1 << 14, 48", r"\1 1 << 8, 16", small)
    assert len(small) < len(published)
    script.write_text(small)

    def train(num_ranks, *options):
        done = subprocess.run(
            [os.environ["WEFT_TOOL"], "run", "-n", str(num_ranks), "--", sys.executable,
             str(script), str(text), "--steps", "4", "--batch", "4", "--tell", "1",
             "--evaluate", "3", "--rate", "0.1", "--plot", f"{tmp_path}/loss.png", *options],
            capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stderr
        told = re.findall(r"loss ([\d.]+).*?expert ([\d.]+)x  rank ([\d.]+)x", done.stdout)
        assert len(told) > 0, done.stdout
        return *([float(number) for number in numbers] for numbers in zip(*told)), done.stdout

    losses, experts, ranks, told = train(2, "--redundant", "2", "--move", "1", "--write", "4",
                                         "--save", str(tmp_path / "saved"))
    assert len(losses) == 4 and "bits per byte" in told and "bytes/s on each rank" in told
    assert ranks[-1] < experts[-1]
    assert train(1, "--write", "4", "--dtype", "float64")[0] == pytest.approx(losses, abs=1e-4)
    assert train(1, "--write", "0", "--resume", f"{tmp_path}/saved/3")[0] == \
        pytest.approx(losses[3:], abs=1e-4)
    without = train(2, "--write", "0", "--bias", "0")
    assert without[0][0] == pytest.approx(losses[0], abs=1e-4)
    assert without[1][-1] > experts[-1]


def test_old_pytorch(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "__version__", type(torch.__version__)("2.13.1"))
    weft_torch_backend.register()
    with pytest.raises(RuntimeError, match=r"needs PyTorch 2\.14 or later.*this is 2\.13\.1"):
        dist.init_process_group("weft", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)


def test_ends_without_a_word():
    """A script that ends with a receive that nobody answers, and without destroying its group."""
    script = """if True:
        import os, torch, torch.distributed as dist
        rank, folder = int(os.environ["WEFT_RANK"]), os.environ["FOLDER"]
        dist.init_process_group("weft", init_method=f"file://{folder}/meet", rank=rank,
                                world_size=2)
        if rank == 0:
            receiving = dist.irecv(torch.empty(2), tag=5)
        dist.all_reduce(torch.ones(1 << 18), async_op=True)
        """
    with tempfile.TemporaryDirectory() as folder:
        done = launch(2, script, FOLDER=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("layout", ["flat", "expert_major"])
def test_token_switch(layout):
    """Tokens and their gradients, by PyTorch's interface, as one process has them."""
    pytest.importorskip("torch.distributed._token_switch")
    experts, topk, hidden, tokens = 4, 2, 8, 6

    def use():
        from weft.token_switch import TokenSwitchWeft

        rank, num_ranks = dist.get_rank(), dist.get_world_size()
        generator = torch.Generator().manual_seed(5)
        everything = torch.randn(num_ranks, tokens, hidden, generator=generator)
        chosen = torch.rand(num_ranks, tokens, experts, generator=generator).topk(topk).indices
        x = everything[rank].clone().requires_grad_()
        weights = torch.full((tokens, topk), 0.5)
        switch = TokenSwitchWeft(dist.group.WORLD, experts, tokens, 64)
        counts = torch.zeros(experts, dtype=torch.int32)
        routing = switch.create_routing(chosen[rank], counts, layout=layout)
        rows, got_weights, got_experts = switch.dispatch(routing, x, weights, 64)
        first = rank * experts // num_ranks
        here = [(chosen == first + i).sum().item() for i in range(experts // num_ranks)]
        assert counts[:len(here)].tolist() == here
        if layout == "flat":
            factors = ((got_experts >= 0) * (got_experts + first + 1) * got_weights).sum(1)
        else:
            assert got_experts is None
            of_row = torch.repeat_interleave(torch.arange(len(here)), torch.tensor(here))
            factors = torch.zeros(64)
            factors[:len(of_row)] = (of_row + first + 1) * got_weights[:len(of_row)]
        y = switch.combine(routing, rows * factors[:, None])
        wanted = (chosen[rank] + 1).sum(1, keepdim=True) * 0.5
        torch.testing.assert_close(y, wanted * everything[rank])
        y.sum().backward()
        torch.testing.assert_close(x.grad, wanted.expand(tokens, hidden))
        with pytest.raises(weft.InvalidArgumentError, match="layout is 'x'"):
            switch.create_routing(chosen[rank], layout="x")

    with_groups(use)
