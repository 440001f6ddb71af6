# SPDX-License-Identifier: MIT
"""The gate against formulas of PyTorch, as models have them, and its gradient against autograd."""
from pathlib import Path

import numpy as np
import pytest
import ranks
import weft
from weft import GateGroupScore, GateScore, GateWeights, gate

torch = pytest.importorskip("torch")
import weft.torch  # noqa: E402

NUM_TOKENS, NUM_EXPERTS = 200, 64


def logits_of(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(NUM_TOKENS, NUM_EXPERTS, generator=generator)).to(dtype)


def bias_of(seed):
    return 0.2 * torch.randn(NUM_EXPERTS, generator=torch.Generator().manual_seed(seed))


def mixtral(x):
    """Softmax of all, the best two, normalised; Qwen3-MoE has eight."""
    weights, idx = torch.softmax(x.double(), -1).topk(2)
    return idx, weights / weights.sum(-1, keepdim=True)


def gpt_oss(x):
    """Softmax of the best logits alone."""
    best, idx = x.double().topk(4)
    return idx, torch.softmax(best, -1)


def deepseek_v3(x, bias):
    """Sigmoid; the bias chooses; four of eight groups, by their two best; scaled."""
    scores = x.double().sigmoid()
    choice = scores + bias
    groups = choice.view(len(x), 8, -1)
    kept = groups.topk(2)[0].sum(-1).topk(4)[1]
    mask = torch.ones(len(x), 8, dtype=torch.bool).scatter(1, kept, False)
    idx = groups.masked_fill(mask[:, :, None], float("-inf")).flatten(1).topk(8)[1]
    weights = scores.gather(1, idx)
    return idx, weights / (weights.sum(-1, keepdim=True) + 1e-20) * 2.5


def sqrt_softplus(x, bias):
    scores = torch.nn.functional.softplus(x.double()).sqrt()
    idx = (scores + bias).topk(6)[1]
    weights = scores.gather(1, idx)
    return idx, weights / (weights.sum(-1, keepdim=True) + 1e-20) * 1.5


def deepseek_v2(x):
    """Softmax, as it is; three of eight groups by their best."""
    scores = torch.softmax(x.double(), -1)
    groups = scores.view(len(x), 8, -1)
    kept = groups.amax(-1).topk(3)[1]
    mask = torch.zeros(len(x), 8, dtype=torch.bool).scatter(1, kept, True)
    weights, idx = (groups * mask[:, :, None]).flatten(1).topk(6)
    return idx, weights * 16


SIGMOID, SQRT_SOFTPLUS = GateScore.SIGMOID, GateScore.SQRT_SOFTPLUS
AS_SCORED = GateWeights.AS_SCORED
MODELS = [
    (mixtral, gate.Rule(2)),
    (gpt_oss, gate.Rule(4)),
    (deepseek_v3, gate.Rule(8, SIGMOID, scale=2.5, num_groups=8, num_kept_groups=4)),
    (sqrt_softplus, gate.Rule(6, SQRT_SOFTPLUS, scale=1.5)),
    (deepseek_v2, gate.Rule(6, weights=AS_SCORED, scale=16, num_groups=8, num_kept_groups=3,
                            group_score=GateGroupScore.MAX)),
]


@pytest.mark.parametrize("model, rule", MODELS, ids=lambda x: getattr(x, "__name__", ""))
def test_models(model, rule):
    def on_rank(comm):
        x, bias = logits_of(1).requires_grad_(), bias_of(2)
        has_bias = model in (deepseek_v3, sqrt_softplus)
        wanted = model(x, *[bias] * has_bias)
        idx, weights = weft.torch.choose_experts(comm, x, rule, bias=bias if has_bias else None)
        assert torch.equal(idx, wanted[0])
        torch.testing.assert_close(weights, wanted[1].float(), rtol=3e-6, atol=0)
        along = torch.randn(weights.shape, generator=torch.Generator().manual_seed(3))
        grad, = torch.autograd.grad((weights * along).sum(), x)
        wanted_grad, = torch.autograd.grad((wanted[1] * along).sum(), x)
        torch.testing.assert_close(grad, wanted_grad, rtol=1e-5, atol=1e-5 * rule.scale)
        assert grad.abs().max() > 0.01

    ranks.run(on_rank, num_ranks=1)


def test_numbers_masks_and_counts():
    def on_rank(comm):
        rule = gate.Rule(3, SIGMOID)
        for dtype in (torch.bfloat16, torch.float16):
            x = logits_of(4, dtype)
            expert_mask = torch.arange(NUM_EXPERTS) % 2 == 0
            token_mask = torch.arange(NUM_TOKENS) != 5
            counts = torch.zeros(NUM_EXPERTS, dtype=torch.int32)
            idx, weights = gate.choose(comm, x, rule, expert_mask=expert_mask,
                                       token_mask=token_mask, counts=counts)
            masked = x.float().masked_fill(~expert_mask, float("-inf"))
            best = masked.sort(dim=-1, descending=True, stable=True)[1][:, :3]
            assert torch.equal(idx[token_mask], best[token_mask])  # ties: the lower index
            assert idx[5].tolist() == [-1] * 3 and weights[5].tolist() == [0] * 3
            assert torch.equal(counts.long(),
                               torch.bincount(idx[token_mask].flatten(), minlength=NUM_EXPERTS))
            again = gate.choose(comm, x, rule, index_type=weft.Dtype.INT32)[0]
            assert again.dtype == torch.int32

    ranks.run(on_rank, num_ranks=1)


def test_layout_takes_the_choice():
    """Without a copy, in numpy, too; the biases then even out the loads of two ranks."""
    def on_rank(comm):
        colls = weft.Collectives(comm)
        handle = weft.ExpertParallel(comm, num_experts=NUM_EXPERTS).handle(num_topk=4)
        x = logits_of(comm.rank).numpy()
        x[:, :4] += 3  # these are chosen by nearly all at first
        rule, bias = gate.Rule(4, SIGMOID), np.zeros(NUM_EXPERTS, np.float32)
        busiest = []
        for _ in range(150):
            counts = np.zeros(NUM_EXPERTS, np.int32)
            idx, _ = gate.choose(comm, x, rule, bias=bias, counts=counts)
            layout = handle.layout(idx, with_tables=True)
            assert np.array_equal(np.asarray(layout.num_tokens_per_expert), counts)
            counts = colls.all_reduce(counts)
            busiest.append(int(counts.max()))
            gate.balance(comm, bias, counts, 0.01)
            assert not counts.any()
        return busiest, bias.tolist()

    (busiest, bias), (_, other) = ranks.run(on_rank)
    assert bias == other and min(bias[:4]) == min(bias) < 0
    assert busiest[-1] < busiest[0] / 4


def test_refusals():
    def on_rank(comm):
        x, rule = logits_of(1), gate.Rule(2)
        for wrong, text in (({"bias": torch.zeros(3)}, "bias"),
                            ({"counts": torch.zeros(NUM_EXPERTS)}, "counts"),
                            ({"index_type": weft.Dtype.BF16}, "index_type"),
                            ({"token_mask": torch.ones(NUM_TOKENS)}, "token_mask")):
            with pytest.raises(weft.InvalidArgumentError, match=text):
                gate.choose(comm, x, rule, **wrong)
        with pytest.raises(weft.InvalidArgumentError, match="num_topk is 65"):
            gate.choose(comm, x, gate.Rule(65))
        with pytest.raises(weft.InvalidArgumentError, match="topk_idx"):
            gate.backward(comm, x, rule, torch.zeros(NUM_TOKENS, 2), torch.zeros(NUM_TOKENS, 2))

    ranks.run(on_rank, num_ranks=1)


def test_the_example_of_the_document():
    text = (Path(__file__).resolve().parents[2] / "docs/gate.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]

    def on_rank(comm):
        names = {"gate": gate, "weft": weft, "torch": torch, "comm": comm,
                 "logits": torch.randn(9, 256), "bias": torch.zeros(256),
                 "collectives": weft.Collectives(comm),
                 "handle": weft.ExpertParallel(comm, num_experts=256).handle(num_topk=8)}
        exec(example, names)
        assert names["bias"].abs().max() == np.float32(0.001)
        assert names["idx"].shape == (9, 8)

    ranks.run(on_rank)
