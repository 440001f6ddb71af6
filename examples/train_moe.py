# SPDX-License-Identifier: MIT
"""Trains a language model of bytes whose experts are spread over the ranks, then lets it write.

    torchrun --nproc-per-node 4 examples/train_moe.py FILE    # any file; without one this clone's

Tokens go to their experts by weft.torch, and gradients of all else are summed by the backend "weft"
of torch.distributed. Any number of ranks has the same global batch, and the same loss, but for
rounding. What --save FOLDER has saved another number of ranks can take up (--resume FOLDER/STEP).
Low-latency operations write text, a byte of each rank at a time. Ranks may share a GPU.
"""
import argparse
import glob
import math
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import weft.torch
from torch import nn
from torch.nn import functional as f

HIDDEN, HEADS, LAYERS, WINDOW = 192, 6, 4, 256
EXPERTS, TOPK, EXPERT_HIDDEN = 8, 2, 384
NGRAMS, NGRAM_ROWS, NGRAM_HIDDEN = (2, 3, 4, 5), 1 << 14, 48  # the last bytes, hashed


class Clock:
    """Seconds that this rank spends in weft: of its core on CPUs, where ranks share cores."""

    def __init__(self, on_gpu: bool):
        self.on_gpu, self.seconds = on_gpu, 0.0

    def now(self) -> float:
        if self.on_gpu:
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def watch(self, owner, *names: str) -> None:
        for name in names:
            def timed(*args, _call=getattr(owner, name), **more):
                began = self.now()
                try:
                    return _call(*args, **more)
                finally:
                    self.seconds += self.now() - began
            setattr(owner, name, timed)


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(HIDDEN, EXPERT_HIDDEN, bias=False)
        self.down = nn.Linear(EXPERT_HIDDEN, HIDDEN, bias=False)
        nn.init.zeros_(self.down.weight)

    def forward(self, x):
        return self.down(f.relu(self.up(x)).square())


class Experts(nn.Module):
    """A shared expert, and this rank's part of those that a gate chooses."""

    def __init__(self, tokens: weft.torch.TokenDispatcher):
        super().__init__()
        self.tokens, self.room = tokens, None
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.shared = Mlp()
        every = [Mlp() for _ in range(EXPERTS)]  # so that random numbers do not depend on ranks
        own = tokens.ep.experts_of(tokens.ep.comm.rank)
        self.own = nn.ModuleDict({str(expert): every[expert] for expert in own})
        self.register_buffer("bias", torch.zeros(EXPERTS))  # for the choice: it balances loads
        self.register_buffer("load", torch.zeros(EXPERTS), persistent=False)

    def forward(self, x):
        scores = self.gate(x).sigmoid()
        chosen = (scores + self.bias).topk(TOPK).indices
        weights = scores.gather(1, chosen)
        weights = (weights / weights.sum(1, keepdim=True)).float()
        if self.room is not None:
            return self.shared(x) + self.few(x.float(), chosen, weights)
        if self.training:
            self.load += torch.bincount(chosen.flatten(), minlength=EXPERTS)
        got = self.tokens.dispatch(x.float(), chosen, weights)
        y = torch.zeros_like(got.rows)
        for local, expert in enumerate(self.own.values()):
            row, k = (got.topk_idx == local).nonzero(as_tuple=True)
            y = y.index_add(0, row, expert(got.rows[row]) * got.topk_weights[row, k, None])
        return self.shared(x) + self.tokens.combine(y, got.routing)

    def balance(self):
        """Makes busy experts rarer, from their shares of the load of all ranks; the largest one."""
        shares = self.load / self.load.mean()
        self.bias += 5e-2 * (1 - shares)
        self.load.zero_()
        return float(shares.max())

    def few(self, x, chosen, weights):
        """By low latency: rows [local experts, capacity, hidden], of which the first have come."""
        got = self.room.dispatch(x, chosen, weights)
        made = torch.stack([expert(rows) for expert, rows in zip(self.own.values(), got.rows)])
        return self.room.combine(made, topk_weights=weights)


class Layer(nn.Module):
    def __init__(self, tokens: weft.torch.TokenDispatcher):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        nn.init.zeros_(self.out.weight)
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        self.experts = Experts(tokens)

    def forward(self, x, turn, past):
        """x [B, T, hidden]; past: keys and values of bytes before, which grows; None: no memory."""
        q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2)
                   for part in self.qkv(self.norms[0](x)).chunk(3, 2))
        q, k = (rotate(f.rms_norm(part, part.shape[-1:]), *turn) for part in (q, k))
        if past is not None:
            if past:
                k, v = (torch.cat(both, 2)[:, :, -WINDOW:] for both in zip(past, (k, v)))
            past[:] = k, v
        y = f.scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.experts(self.norms[1](x).flatten(0, 1)).view_as(x)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Model(nn.Module):
    def __init__(self, tokens: weft.torch.TokenDispatcher):
        super().__init__()
        self.bytes = nn.Embedding(256, HIDDEN)
        self.ngrams = nn.ModuleList(nn.Embedding(NGRAM_ROWS, NGRAM_HIDDEN) for _ in NGRAMS)
        self.widen = nn.Linear(len(NGRAMS) * NGRAM_HIDDEN, HIDDEN, bias=False)
        self.layers = nn.ModuleList(Layer(tokens) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, 256)
        for embedding in (self.bytes, *self.ngrams):
            nn.init.normal_(embedding.weight, std=0.5)

    def forward(self, ids, past=None, first=0):
        """ids [B, T] -> [B, T - first, 256]: what may follow the ids from the first one on."""
        position = torch.arange(first, ids.shape[1], device=ids.device)
        angle = position[:, None] * torch.logspace(0, -3, HIDDEN // HEADS // 2, device=ids.device)
        x, hashed = self.bytes(ids), []
        code = torch.zeros_like(ids)
        for n in range(max(NGRAMS)):
            code = (code * 31337 + f.pad(ids, (n, 0))[:, :ids.shape[1]] + 1) % 1000003
            if n + 1 in NGRAMS:
                hashed.append(self.ngrams[NGRAMS.index(n + 1)](code % NGRAM_ROWS))
        x = (x + self.widen(torch.cat(hashed, 2)))[:, first:]
        for layer, layer_past in zip(self.layers, past or [None] * LAYERS):
            x = layer(x, (angle.cos(), angle.sin()), layer_past)
        return self.head(self.norm(x))


class Run:
    def __init__(self, options):
        self.options = options
        self.on_gpu = torch.cuda.is_available()
        if self.on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        self.device = "cuda" if self.on_gpu else "cpu"
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))
        dist.init_process_group("weft")
        self.rank, self.num_ranks = dist.get_rank(), dist.get_world_size()
        self.comm = weft.torch.communicator()
        self.tokens = weft.torch.TokenDispatcher(self.comm, EXPERTS, TOPK, None)
        self.clock = Clock(self.on_gpu)
        self.clock.watch(weft.Handle, "layout", "notify", "wait_counts", "dispatch", "combine")
        self.clock.watch(dist, "all_reduce")
        torch.manual_seed(1)
        self.model = Model(self.tokens).to(self.device, getattr(torch, options.dtype))
        for layer in self.model.layers:
            layer.experts.own.float()  # as the rows that come
        self.optimiser = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.95),
                                           weight_decay=0.1)
        self.shared = [p for name, p in self.model.named_parameters() if ".own." not in name]
        data = b"".join(open(name, "rb").read() for name in options.files)
        data = torch.frombuffer(bytearray(data), dtype=torch.uint8).long().to(self.device)
        self.data, self.held_out = data[:-(len(data) // 10)], data[-(len(data) // 10):]
        self.step, self.losses = 0, []

    def own_part(self, rows):
        """This rank's rows of a batch [B, T], which may be none."""
        first, end = (len(rows) * r // self.num_ranks for r in (self.rank, self.rank + 1))
        return rows[first:end]

    def windows(self, data, firsts):
        """This rank's part of the windows of a batch, and the byte after each of their bytes."""
        rows = data[(self.own_part(firsts)[:, None] + torch.arange(WINDOW + 1)).to(self.device)]
        return rows[:, :-1], rows[:, 1:]

    def train_step(self):
        done = self.step / self.options.steps
        rate = self.options.rate * min(1, (self.step + 1) / 100, (1 - done) / 0.6 + 0.02)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        draw = torch.Generator().manual_seed(self.step)
        firsts = torch.randint(len(self.data) - WINDOW, (self.options.batch,), generator=draw)
        x, y = self.windows(self.data, firsts)
        loss = f.cross_entropy(self.model(x).flatten(0, 1), y.flatten(), reduction="sum")
        loss = loss / (self.options.batch * WINDOW)
        self.optimiser.zero_grad()
        loss.backward()  # experts get their gradients from all ranks
        told = [loss.detach().view(1), *(layer.experts.load for layer in self.model.layers)]
        sums = [*(p.grad for p in self.shared), *told]
        flat = torch.cat([part.flatten() for part in sums])
        dist.all_reduce(flat)
        for part, summed in zip(sums, flat.split([part.numel() for part in sums])):
            part.copy_(summed.view_as(part))
        self.optimiser.step()
        self.busiest = max(layer.experts.balance() for layer in self.model.layers)
        self.step += 1
        self.losses.append(told[0].item())

    @torch.no_grad()
    def bits_per_byte(self):
        """Of the held-out tenth. Each byte is told from WINDOW / 2 bytes before it, or more."""
        half, nats = WINDOW // 2, torch.zeros(2, device=self.device)
        self.model.eval()
        every = torch.arange(0, len(self.held_out) - WINDOW, half)
        for firsts in every.split(self.options.batch):
            x, y = self.windows(self.held_out, firsts)
            logits = self.model(x)[:, half:].flatten(0, 1)
            nats += torch.stack((f.cross_entropy(logits, y[:, half:].flatten(), reduction="sum"),
                                 nats.new_tensor(len(logits))))
        self.model.train()
        dist.all_reduce(nats)
        return float(nats[0] / nats[1]) / math.log(2)

    def train(self):
        began, first, clock_began = time.monotonic(), self.step, self.clock.now()
        self.clock.seconds = 0.0
        while self.step < self.options.steps:
            self.train_step()
            if self.step % self.options.tell == 0 or self.step == self.options.steps:
                seconds = time.monotonic() - began
                rate = (self.step - first) * self.options.batch * WINDOW / seconds
                share = self.clock.seconds / (self.clock.now() - clock_began)
                self.say(f"\r[{'#' * (20 * self.step // self.options.steps):20}] "
                         f"{self.step}/{self.options.steps} loss {self.losses[-1]:.4f}  "
                         f"{rate:.0f} bytes/s  communication {share:.0%}  "
                         f"busiest expert {self.busiest:.2f}x  {seconds:.0f} s ", end="")
            if self.step % self.options.evaluate == 0 or self.step == self.options.steps:
                self.say(f"\n{self.bits_per_byte():.4f} bits per byte of the held-out tenth")
                self.save()
        self.plot()

    def state(self):
        """Parameters and moments, by names that do not depend on where an expert is."""
        state = dict(self.model.state_dict())
        for name, parameter in self.model.named_parameters():
            for moment, like in ("exp_avg", parameter), ("exp_avg_sq", parameter), ("step", None):
                zeros = torch.zeros(()) if like is None else torch.zeros_like(like)
                state[f"{moment} of {name}"] = \
                    self.optimiser.state[parameter].setdefault(moment, zeros)
        return state | {"steps": torch.tensor(self.step)}

    def save(self):
        if self.options.save:
            checkpoint.save(self.state(), checkpoint_id=f"{self.options.save}/{self.step}")

    def resume(self, folder):
        state = self.state()
        checkpoint.load(state, checkpoint_id=folder)
        self.step = int(state["steps"])  # all else is read in place

    def plot(self):
        if self.rank != 0 or not self.losses:
            return
        try:
            from matplotlib import pyplot
        except ImportError:
            return print("no plot of the loss: pip install matplotlib")
        pyplot.switch_backend("Agg")
        pyplot.plot(range(self.step - len(self.losses), self.step), self.losses)
        pyplot.gca().set(xlabel="step", ylabel="loss, nats per byte")
        pyplot.savefig(self.options.plot)
        print(f"the loss: {self.options.plot}")

    @torch.no_grad()
    def write(self, num_bytes):
        """Each rank writes on from another place of the held-out tenth."""
        for layer in self.model.layers:
            layer.experts.room = weft.LowLatency(self.tokens.ep, HIDDEN, WINDOW // 2, TOPK,
                                                 torch.float32, answer=weft.LlAnswer.ROWS)
        first = len(self.held_out) // (self.num_ranks + 1) * self.rank
        ids = self.held_out[first:first + WINDOW // 2][None]
        past = [[] for _ in range(LAYERS)]
        logits = self.model(ids, past)[:, -1]
        draw = torch.Generator(self.device).manual_seed(self.rank)
        began = time.monotonic()
        for _ in range(num_bytes):
            chosen = torch.multinomial((logits / 0.8).softmax(1), 1, generator=draw)
            ids = torch.cat((ids, chosen), 1)
            logits = self.model(ids, past, first=ids.shape[1] - 1)[:, -1]
        seconds = time.monotonic() - began
        text = bytes(ids[0].tolist()).decode(errors="replace")
        self.say(f"\n{text}\n\n{num_bytes / seconds:.0f} bytes/s on each rank")

    def say(self, text, end="\n"):
        if self.rank == 0:
            print(text, end=end, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    sources = sorted(glob.glob(f"{here}/src/**/*.c", recursive=True))
    parser.add_argument("files", nargs="*", default=sources)
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--batch", type=int, default=32, help="windows of all ranks in a step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--dtype", default="float32", help="or float64: of all but experts")
    parser.add_argument("--tell", type=int, default=5, help="steps between lines of progress")
    parser.add_argument("--evaluate", type=int, default=100, help="steps between evaluations")
    parser.add_argument("--plot", default="loss.png")
    parser.add_argument("--save", help="folder of checkpoints, one at each evaluation")
    parser.add_argument("--resume", help="one of these: FOLDER/STEP")
    parser.add_argument("--write", type=int, default=400, help="bytes of text at the end")
    run = Run(parser.parse_args())
    if run.options.resume:
        run.resume(run.options.resume)
    run.train()
    if run.options.write:
        run.write(run.options.write)
    dist.destroy_process_group()


main()
