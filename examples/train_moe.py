# SPDX-License-Identifier: MIT
"""Trains a language model of bytes whose experts are spread over the ranks, then lets it write.

    torchrun --nproc-per-node 4 examples/train_moe.py FILE    # any file; without one this clone's

weft.torch sends tokens to their experts, the backend "weft" of torch.distributed sums the gradients
of all else, and low-latency operations write text, a byte of each rank at a time. Any number of
ranks has the same global batch, and the same loss, but for rounding; it can resume what another
number has saved. --bias balances loads by other choices, --redundant and --move by other places.
Ranks may share a GPU.
"""
import argparse
import functools
import math
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import weft.torch
from torch import nn
from torch.nn import functional as f
from weft import balance, gate

HIDDEN, HEADS, LAYERS, WINDOW = 192, 6, 4, 256
EXPERTS, TOPK, EXPERT_HIDDEN = 8, 2, 384
NGRAMS, NGRAM_ROWS, NGRAM_HIDDEN = 4, 1 << 14, 48  # the last 2, 3, 4 and 5 bytes, hashed
RULE = gate.Rule(TOPK, score=weft.GateScore.SIGMOID)
MOMENTS = "exp_avg", "exp_avg_sq"  # AdamW's


class Clock:
    """Seconds that this rank spends in weft: of its core on CPUs, where ranks share cores."""

    seconds = 0.0

    def now(self):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.process_time()

    def watch(self, owner, *names):
        for name in names:
            def timed(*args, call=getattr(owner, name), **more):
                began = self.now()
                result = call(*args, **more)
                self.seconds += self.now() - began
                return result
            setattr(owner, name, timed)


def mlp(x, weights):
    """weights [..., 2, HIDDEN, EXPERT_HIDDEN]"""
    up, down = weights.unbind(-3)
    return f.relu(x @ up).square() @ down.mT


class Experts(nn.Module):
    """A shared expert, and this rank's part of those that a gate chooses."""

    def __init__(self, comm, expert_ranks, num_own):
        super().__init__()
        self.tokens = weft.torch.TokenDispatcher(comm, EXPERTS, TOPK, None,
                                                 expert_ranks=expert_ranks)
        self.comm, self.room, self.expert_ranks = comm, None, expert_ranks
        self.ids = self.tokens.ep.experts_of(comm.rank)
        self.gate = nn.Linear(HIDDEN, EXPERTS, bias=False)
        every = torch.zeros(EXPERTS + 1, 2, HIDDEN, EXPERT_HIDDEN)  # alike on all ranks
        every[:, 0].uniform_(-1, 1).mul_(HIDDEN ** -0.5)
        self.shared = nn.Parameter(every[-1].clone())
        # [local expert, weights and moments], in fp32 as the rows that come.
        self.held = comm.heap_empty((num_own, 3, *every.shape[1:]), torch.float32).zero_()
        self.held[:len(self.ids), 0] = every[self.ids]

    def forward(self, x):
        chosen, weights = weft.torch.choose_experts(
            self.comm, self.gate(x).float(), RULE, bias=self.bias,
            counts=self.counts[:EXPERTS] if self.training else None)
        if self.room is not None:  # rows [local experts, capacity, hidden], the first have come
            rows = self.room.dispatch(x.float(), chosen, weights).rows
            made = mlp(rows, self.own[:len(rows)])
            return mlp(x, self.shared) + self.room.combine(made, topk_weights=weights)
        got = self.tokens.dispatch(x.float(), chosen, weights)
        if self.training:
            self.counts[EXPERTS + self.comm.rank] += sum(got.counts.num_selections_per_expert)
        y = torch.zeros_like(got.rows)
        for local in range(len(self.ids)):
            row, k = (got.topk_idx == local).nonzero(as_tuple=True)
            answer = mlp(got.rows[row], self.own[local])
            y = y.index_add(0, row, answer * got.topk_weights[row, k, None])
        return mlp(x, self.shared) + self.tokens.combine(y, got.routing)

    def move(self, expert_ranks, spare):
        """Moments of experts go along with their weights."""
        self.tokens.move_experts(expert_ranks, [self.held], [spare])
        self.held.copy_(spare)
        self.expert_ranks, self.ids = expert_ranks, self.tokens.ep.experts_of(self.comm.rank)

    def shared_gradients(self):
        """Of experts with copies, each of which has a part; 0 from ranks without one."""
        return [self.own.grad[self.ids.index(expert)] if expert in self.ids else
                torch.zeros_like(self.own[0]) for expert, ranks in enumerate(self.expert_ranks)
                if len(ranks) > 1]


class Layer(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        nn.init.zeros_(self.out.weight)
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        self.experts = experts

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
    def __init__(self, experts):
        super().__init__()
        self.bytes = nn.Embedding(256, HIDDEN)
        self.ngrams = nn.ModuleList(nn.Embedding(NGRAM_ROWS, NGRAM_HIDDEN) for _ in range(NGRAMS))
        self.widen = nn.Linear(NGRAMS * NGRAM_HIDDEN, HIDDEN, bias=False)
        self.layers = nn.ModuleList(Layer(of_layer) for of_layer in experts)
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, 256)
        for embedding in (self.bytes, *self.ngrams):
            nn.init.normal_(embedding.weight, std=0.5)

    def forward(self, ids, past=None, first=0):
        """ids [B, T] -> [B, T - first, 256]: what may follow the ids from the first one on."""
        position = torch.arange(first, ids.shape[1], device=ids.device)
        angle = position[:, None] * torch.logspace(0, -3, HIDDEN // HEADS // 2, device=ids.device)
        code, hashed = ids + 1, []
        for n, ngram in enumerate(self.ngrams, 1):
            code = (code * 31337 + f.pad(ids, (n, 0))[:, :ids.shape[1]] + 1) % 1000003
            hashed.append(ngram(code % NGRAM_ROWS))
        x = (self.bytes(ids) + self.widen(torch.cat(hashed, 2)))[:, first:]
        for layer, layer_past in zip(self.layers, past or [None] * LAYERS):
            x = layer(x, (angle.cos(), angle.sin()), layer_past)
        return self.head(self.norm(x))


class Run:
    def __init__(self, options):
        self.options, device = options, "cpu"
        if torch.cuda.is_available():
            device = f"cuda:{int(os.environ['LOCAL_RANK']) % torch.cuda.device_count()}"
            torch.cuda.set_device(device)
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])))
        dist.init_process_group("weft")
        self.rank, self.num_ranks, self.device = dist.get_rank(), dist.get_world_size(), device
        self.say = functools.partial(print, flush=True) if self.rank == 0 else lambda *_, **__: None
        self.comm, self.clock = weft.torch.communicator(), Clock()
        self.clock.watch(weft.Handle, "layout", "notify", "wait_counts", "dispatch", "combine")
        self.clock.watch(dist, "all_reduce")
        num_own = -(-(EXPERTS + options.redundant) // self.num_ranks)  # the same on all ranks
        self.place = functools.partial(balance.place, num_replicas=num_own * self.num_ranks,
                                       num_ranks=self.num_ranks)
        self.placement = self.place([[1] * EXPERTS] * LAYERS)
        torch.manual_seed(1)
        self.experts = [Experts(self.comm, self.placement.expert_ranks(layer), num_own)
                        for layer in range(LAYERS)]
        self.model = Model(self.experts).to(device, getattr(torch, options.dtype))
        self.spare = self.comm.heap_empty(self.experts[0].held.shape, torch.float32)
        # Tokens of each expert, then of each rank: of a step, and since experts have moved.
        self.counts, self.loads = (torch.zeros(LAYERS, EXPERTS + self.num_ranks, dtype=torch.int32,
                                               device=device) for _ in range(2))
        self.biases = torch.zeros(LAYERS, EXPERTS, device=device)  # fp32, as experts are
        for experts, counts, bias in zip(self.experts, self.counts, self.biases):
            experts.counts, experts.bias = counts, bias
            experts.own = nn.Parameter(experts.held[:, 0])
        own = {experts.own: experts.held[:, 1:].unbind(1) for experts in self.experts}
        self.shared = {p: name for name, p in self.model.named_parameters() if p not in own}
        self.optimiser = torch.optim.AdamW(self.model.parameters(), betas=(0.9, 0.95),
                                           weight_decay=0.1)
        for p in self.model.parameters():
            self.optimiser.state[p] = {"step": torch.tensor(0.0)} | dict(zip(
                MOMENTS, own.get(p) or (torch.zeros_like(p) for _ in MOMENTS)))
        data = b"".join(open(name, "rb").read() for name in options.files)
        data = torch.frombuffer(bytearray(data), dtype=torch.uint8).long().to(device)
        self.data, self.held_out = data[:-(len(data) // 10)], data[-(len(data) // 10):]
        self.step, self.told = 0, []

    def windows(self, data, firsts):
        """This rank's part of the windows of a batch, and the byte after each of their bytes."""
        begin, end = (len(firsts) * r // self.num_ranks for r in (self.rank, self.rank + 1))
        rows = data[(firsts[begin:end, None] + torch.arange(WINDOW + 1)).to(self.device)]
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
        sums = [loss.detach().view(1), *(p.grad for p in self.shared)]
        for experts in self.experts:
            sums += experts.shared_gradients()
        flat = torch.cat([part.flatten() for part in sums])
        dist.all_reduce(flat)
        for part, summed in zip(sums, flat.split([part.numel() for part in sums])):
            part.copy_(summed.view_as(part))
        self.optimiser.step()
        self.step += 1
        self.told.append((loss.item(), *self.balance()))

    def balance(self):
        """Evens loads out; returns the busiest expert and the busiest rank over the mean."""
        dist.all_reduce(self.counts)
        self.loads += self.counts
        busiest = [float((part.amax(1) / part.double().mean(1)).max())
                   for part in self.counts.split((EXPERTS, self.num_ranks), 1)]
        for experts in self.experts:
            gate.balance(self.comm, experts.bias, experts.counts[:EXPERTS], self.options.bias)
        self.counts.zero_()
        if self.options.move and self.step % self.options.move == 0:
            self.placement, _ = self.placement.moves_to(
                self.place(self.loads[:, :EXPERTS].tolist()))
            for layer, experts in enumerate(self.experts):
                experts.move(self.placement.expert_ranks(layer), self.spare)
            self.loads.zero_()
        return busiest

    @torch.no_grad()
    def bits_per_byte(self):
        """Of the held-out tenth. Each byte is told from WINDOW / 2 bytes before it, or more."""
        half, nats = WINDOW // 2, torch.zeros(1, device=self.device)
        self.model.eval()
        every = torch.arange(0, len(self.held_out) - WINDOW, half)
        for firsts in every.split(self.options.batch):
            x, y = self.windows(self.held_out, firsts)
            logits = self.model(x)[:, half:].flatten(0, 1)
            nats += f.cross_entropy(logits, y[:, half:].flatten(), reduction="sum")
        self.model.train()
        dist.all_reduce(nats)
        return float(nats) / (len(every) * half) / math.log(2)

    def train(self):
        began, first, clock_began = time.monotonic(), self.step, self.clock.now()
        self.clock.seconds = 0.0
        while self.step < self.options.steps:
            self.train_step()
            if self.step % self.options.tell == 0:
                seconds = time.monotonic() - began
                rate = (self.step - first) * self.options.batch * WINDOW / seconds
                share = self.clock.seconds / (self.clock.now() - clock_began)
                loss, expert, rank = torch.tensor(self.told[-self.options.tell:]).mean(0).tolist()
                self.say(f"\r[{'#' * (20 * self.step // self.options.steps):20}] "
                         f"{self.step}/{self.options.steps} loss {loss:.4f}  "
                         f"{rate:.0f} bytes/s  communication {share:.0%}  "
                         f"busiest expert {expert:.2f}x  rank {rank:.2f}x  {seconds:.0f} s ",
                         end="")
            if self.step % self.options.evaluate == 0 or self.step == self.options.steps:
                self.say(f"\n{self.bits_per_byte():.4f} bits per byte of the held-out tenth")
                if self.options.save:
                    checkpoint.save(self.state(), checkpoint_id=f"{self.options.save}/{self.step}")
        if self.rank == 0:
            self.plot()

    def state(self):
        """By names that do not depend on where an expert is."""
        state = {"steps": torch.tensor(self.step), "biases": self.biases}
        for p, name in self.shared.items():
            state |= {f"{moment} of {name}": self.optimiser.state[p][moment] for moment in MOMENTS}
            state[name] = p.detach()
        for layer, experts in enumerate(self.experts):
            state |= {f"expert {expert} of layer {layer}": experts.held[local]
                      for local, expert in enumerate(experts.ids)}
        return state

    def resume(self, folder):
        state = self.state()
        checkpoint.load(state, checkpoint_id=folder)  # in place
        self.step = int(state["steps"])
        for parameter in self.optimiser.state.values():
            parameter["step"].fill_(self.step)

    def plot(self):
        try:
            from matplotlib import pyplot
        except ImportError:
            return self.say("no plot of the loss: pip install matplotlib")
        pyplot.plot(range(self.step - len(self.told), self.step), [step[0] for step in self.told])
        pyplot.gca().set(xlabel="step", ylabel="loss, nats per byte")
        pyplot.savefig(self.options.plot)

    @torch.no_grad()
    def write(self, num_bytes):
        """Each rank writes on from another place of the held-out tenth."""
        for experts in self.experts:
            experts.room = weft.LowLatency(experts.tokens.ep, HIDDEN, WINDOW // 2, TOPK,
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
        rate = num_bytes / (time.monotonic() - began)
        self.say(f"\n{bytes(ids[0].tolist()).decode(errors='replace')}\n\n"
                 f"{rate:.0f} bytes/s on each rank")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sources = pathlib.Path(__file__).resolve().parents[1].glob("src/**/*.c")
    parser.add_argument("files", nargs="*", default=sorted(sources))
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--batch", type=int, default=32, help="windows of all ranks in a step")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--dtype", default="float32", help="or float64: of all but experts")
    parser.add_argument("--bias", type=float, default=0.03, help="step of biases; 0: none")
    parser.add_argument("--redundant", type=int, default=0, help="copies of busy experts")
    parser.add_argument("--move", type=int, default=0, help="steps until experts move; 0: never")
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
