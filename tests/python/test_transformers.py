# SPDX-License-Identifier: MIT
"""Small random models of Hugging Face transformers, whose experts are spread over ranks, equal one
process; skipped without transformers and accelerate."""
import os
import re
import tempfile

import pytest
import weft
from ranks import run, train_example

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")
torch.set_num_threads(1)  # before ranks are forked
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import transformers  # noqa: E402
import weft.transformers as door  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402
from transformers.distributed import DistributedConfig  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
EXPERTS, TOPK, HIDDEN, VOCABULARY = 8, 3, 128, 96
STEPS = 20
SIZES = {"vocab_size": VOCABULARY, "hidden_size": HIDDEN, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32,
         "intermediate_size": 48, "max_position_embeddings": 128, "num_experts_per_tok": TOPK}
FAMILIES = {
    "qwen3_moe": {"moe_intermediate_size": 48, "num_experts": EXPERTS, "norm_topk_prob": True},
    "mixtral": {"num_local_experts": EXPERTS},
    "olmoe": {"num_experts": EXPERTS},
    "gpt_oss": {"num_local_experts": EXPERTS},
    "deepseek_v3": {"moe_intermediate_size": 48, "n_routed_experts": EXPERTS, "n_group": 2,
                    "topk_group": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16,
                    "q_lora_rank": 16, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16,
                    "v_head_dim": 16, "head_dim": 16}}


class Ranks:
    """Loads models. num_sharers: of ranks with the same batch."""

    def __init__(self, comm):
        self.rank, self.num_ranks = comm.rank, comm.num_ranks

    def load(self, folder, num_sharers):
        spread = DistributedConfig(
            tp_size=num_sharers, fsdp_size=self.num_ranks // num_sharers, ep_size=self.num_ranks,
            ep_implementation="weft")
        return tuple(AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, distributed_config=config) for config in (spread, None))

    def batches(self, num_sharers, seed=0):
        """That of this rank, and all."""
        all_ = [torch.randint(VOCABULARY, (2, 16 + 3 * i),
                              generator=torch.Generator().manual_seed(100 * seed + i))
                for i in range(self.num_ranks // num_sharers)]
        return all_[self.rank // num_sharers], all_


def save(family, folder):
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **(SIZES | FAMILIES[family])), dtype=torch.float32)
    for name, parameter in model.named_parameters():
        if "gate.weight" in name or "router.weight" in name:
            torch.nn.init.normal_(parameter, 0, 0.3)  # so that tokens choose different experts
    model.save_pretrained(folder)


def with_models(function, num_ranks, families):
    """function(ranks, family, folder) on ranks with a gloo group."""
    with tempfile.TemporaryDirectory() as folder:
        for family in filter(None, families):
            save(family, f"{folder}/{family}")

        def be_rank(comm):
            os.environ |= {"RANK": str(comm.rank), "LOCAL_RANK": str(comm.rank),
                           "WORLD_SIZE": str(num_ranks)}
            torch.distributed.init_process_group(
                "gloo", init_method=f"file://{folder}/meet", rank=comm.rank, world_size=num_ranks)
            results = [function(Ranks(comm), family, f"{folder}/{family}") for family in families]
            comm.host_barrier()  # rank 0 serves the other communicators
            return results

        return run(be_rank, num_ranks)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def assert_equals_alone(ranks, folder, num_sharers):
    """Logits, what is generated, and all gradients."""
    spread, alone = ranks.load(folder, num_sharers)
    own, all_ = ranks.batches(num_sharers)
    close = {"rtol": 0, "atol": 1e-6}
    with torch.no_grad():
        torch.testing.assert_close(spread.eval()(own).logits, alone.eval()(own).logits, **close)
        few = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
        assert torch.equal(spread.generate(own[:, :8], **few), alone.generate(own[:, :8], **few))
    spread(own, labels=own).loss.backward()
    for batch in all_:
        (alone(batch, labels=batch).loss / len(all_)).backward()
    num_compared = 0
    for (name, found), (_, wanted) in zip(spread.named_parameters(), alone.named_parameters()):
        if wanted.grad is not None:
            torch.testing.assert_close(whole(found.grad), wanted.grad, **close, msg=name)
            num_compared += "experts" in name
    assert num_compared >= 4


@pytest.mark.parametrize(("num_ranks", "families"), [(2, [*FAMILIES]), (4, ["qwen3_moe"])])
def test_families(num_ranks, families):
    def compare(ranks, family, folder):
        for num_sharers in {1, 2, num_ranks}:
            assert_equals_alone(ranks, folder, num_sharers)

    with_models(compare, num_ranks, families)


def test_training():
    """Steps equal those of one process; recomputation changes no bit."""
    def train(ranks, family, folder):
        (spread, alone), (again, _) = ranks.load(folder, 1), ranks.load(folder, 1)
        again.gradient_checkpointing_enable({"use_reentrant": False})
        optimisers = [torch.optim.AdamW(model.train().parameters(), lr=3e-4, foreach=False)
                      for model in (spread, alone)]
        again.train()
        for step in range(STEPS):
            all_ = [(torch.randint(VOCABULARY, (8, 1),
                                   generator=torch.Generator().manual_seed(2 * step + rank))
                     + torch.arange(12 + 3 * rank)) % VOCABULARY for rank in range(2)]
            own = all_[ranks.rank]
            loss = spread(own, labels=own).loss
            loss.backward()
            if step == 0:
                first = loss.item()
                recomputed = again(own, labels=own).loss
                recomputed.backward()
                assert torch.equal(loss, recomputed)
                for found, wanted in zip(again.parameters(), spread.parameters()):
                    assert torch.equal(found.grad.to_local(), wanted.grad.to_local())
            losses = [alone(batch, labels=batch).loss for batch in all_]
            (sum(losses) / 2).backward()
            torch.testing.assert_close(loss, losses[ranks.rank], rtol=0, atol=1e-4)
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
        assert loss < first - 0.3

    with_models(train, 2, ["qwen3_moe"])


class Experts(torch.nn.Module):
    """Expert i multiplies by i + 1."""

    def __init__(self, rank, num_ranks):
        super().__init__()
        self.num_experts = EXPERTS // num_ranks
        self.first = self.num_experts * rank

    def forward(self, x, topk_idx, topk_weights):
        factors = topk_weights * (topk_idx < self.num_experts) * (topk_idx + self.first + 1)
        return (x * factors.sum(1, keepdim=True)).to(x.dtype)


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_layer(num_ranks):
    """Few tokens, many, and few beside many; whole rows and narrow ones."""
    def compare(ranks, family, folder):
        mesh = init_device_mesh("cpu", (1, num_ranks), mesh_dim_names=("tp", "ep"))
        experts = Experts(ranks.rank, num_ranks)
        few, normal, narrow = (door.WeftEP(experts, mesh["ep"], mesh["tp"], door.Options(**options))
                               for options in ({"low_latency_tokens": 5}, {"low_latency_tokens": 0},
                                               {"low_latency_tokens": 5,
                                                "narrow": weft.Dtype.FP8_E4M3}))
        for dtype, rounding in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
            for num_tokens in ((5, 1), (0, 3), (40, 2), (3, 40), (0, 40), (30, 70), (0, 0), (5, 5)):
                torch.manual_seed(ranks.rank + sum(num_tokens))
                x = torch.randn(num_tokens[ranks.rank % 2], HIDDEN).to(dtype)
                weights, ids = torch.rand(len(x), EXPERTS).topk(TOPK)
                if len(x) > 1:
                    ids[1] = -1  # no expert
                if num_tokens == (3, 40):
                    weights[0] = torch.nan
                wanted = x * (weights * (ids + 1)).sum(1, keepdim=True)
                close = {"rtol": rounding, "atol": 3 * rounding, "check_dtype": False,
                         "equal_nan": True}
                with torch.inference_mode():
                    few(x, ids, weights)
                with torch.no_grad():
                    found = few(x, ids, weights)
                    torch.testing.assert_close(found, wanted, **close)
                    torch.testing.assert_close(normal(x, ids, weights), found, rtol=0, atol=0,
                                               equal_nan=True)
                    rough = narrow(x, ids, weights)
                    torch.testing.assert_close(rough, wanted, rtol=0.08, atol=0.08,
                                               check_dtype=False, equal_nan=True)
                    assert len(x) < 3 or not torch.equal(rough, found)
                x.requires_grad_()
                narrow(x, ids, weights).sum().backward()
                torch.testing.assert_close(
                    x.grad, (weights * (ids + 1)).sum(1, keepdim=True).expand_as(x), **close)

    with_models(compare, num_ranks, [""])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_sums(dtype):
    """Of the choices on a rank, and of their gradients: rounded once, to even, as of float64."""
    def compare(ranks, family, folder):
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("ep",))["ep"]
        layer = door.WeftEP(Experts(ranks.rank, 2), mesh, mesh)
        torch.manual_seed(1)
        x, grad = torch.randn(2, 70, HIDDEN).to(dtype)
        weights, ids = torch.rand(len(x), EXPERTS).topk(EXPERTS)

        def sums(rows):
            parts = []
            for rank in range(2):
                here = weights * (ids // (EXPERTS // 2) == rank)
                parts.append(sum((rows * factor).to(dtype).double()
                                 for factor in (here * (ids + 1)).t()[..., None]).to(dtype))
            return (parts[0].double() + parts[1].double()).to(dtype)

        leaf = x.clone().requires_grad_()
        out = layer(leaf, ids, weights)
        out.backward(grad)
        for found, wanted in ((out, sums(x)), (leaf.grad, sums(grad))):
            torch.testing.assert_close(found, wanted, rtol=0,
                                       atol=1e-13 if dtype == torch.float64 else 0)

    with_models(compare, 2, [""])


def test_example():
    done = train_example("transformers_experts.py")
    # torchrun runs python -u, which writes a line and its end apart: two ranks can share a line.
    counts = re.findall(r"rank \d counts: \[([\d, ]*)\]", done.stdout)
    assert len(counts) == 2, done.stdout
    for counted in counts:
        numbers = [int(number) for number in counted.split(", ")]
        assert numbers == [(numbers[0] + i) % 64 for i in range(12)]
