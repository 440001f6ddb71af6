# SPDX-License-Identifier: MIT
"""What PyTorch builds on torch.distributed's backend "weft": models, checkpoints, an example, the
switch of tokens; skipped without PyTorch."""
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import pytest
import weft
from ranks import LIMIT_S
from test_torch_distributed import with_groups
from torch_ranks import torch

dist = torch.distributed


def small_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def train(model, rank=0, num_ranks=1):
    """Two steps with a rank's part of each batch; the parameters after them."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        x = torch.randn(6, 8, generator=torch.Generator().manual_seed(step))
        model(x.chunk(num_ranks)[rank]).square().mean().backward()
        optimizer.step()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]


def test_models():
    """DDP, FSDP2, DTensor and tensor parallelism give the parameters of one process."""
    def use():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                       parallelize_module)
        from torch.nn.parallel import DistributedDataParallel

        alone, rank, num_ranks = small_model(), dist.get_rank(), dist.get_world_size()
        trained = train(alone)
        mesh = init_device_mesh("cpu", (num_ranks,))
        for wrap in (DistributedDataParallel, lambda model: fully_shard(model, mesh=mesh)):
            for got, wanted in zip(train(wrap(small_model()), rank, num_ranks), trained):
                torch.testing.assert_close(got, wanted)
        whole = torch.arange(12.0).reshape(4, 3)
        shards = distribute_tensor(whole, mesh, [Shard(0)])
        assert isinstance(shards, DTensor)
        assert torch.equal(shards.redistribute(mesh, [Shard(1)]).full_tensor(), whole)
        assert torch.equal(shards.redistribute(mesh, [Replicate()]).to_local(), whole)
        parallel = parallelize_module(small_model(), mesh,
                                      {"0": ColwiseParallel(), "2": RowwiseParallel()})
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
