# SPDX-License-Identifier: MIT
"""A low-latency combine that begins while the experts work; skipped without PyTorch."""
import random
import threading
import time

import pytest
import weft
from test_deep_ep import EXPERTS, HIDDEN, batch, deep_ep
from torch_ranks import One, on_group, torch

MAX_TOKENS, BLOCK_ROWS = 12, 5


def words_of(form, num_local, num_rows):
    """The words of SGLang's call, how many rows each is for, and the call's arguments."""
    if form == "src_signals":
        words = torch.zeros(num_local, dtype=torch.uint32)
        return words, num_rows, {"src_signals": words, "src_signal_expect_value": 1}
    words = torch.zeros(num_local * -(-num_rows // BLOCK_ROWS) + 7, dtype=torch.int32)
    return words, BLOCK_ROWS, {
        "packed_recv_count": torch.zeros(num_local, dtype=torch.int32), "comp_signal": words,
        "block_m": BLOCK_ROWS, "threshold": 4, "num_sms": 3}


def work(made, rows, counts, words, rows_per_word, value, seed):
    """Writes the rows, block after block in any order, and raises their words behind them."""
    num_local, num_rows, _ = rows.shape
    per_expert = -(-num_rows // rows_per_word)
    blocks = [(e, b) for e in range(num_local) for b in range(per_expert)
              if b * rows_per_word < counts[e]]  # of no rows nobody may wait for
    random.Random(seed).shuffle(blocks)
    time.sleep(0.02)  # so that combine mostly waits
    for expert, block in blocks:
        words[expert * per_expert + block] = value - 1
        part = slice(block * rows_per_word, (block + 1) * rows_per_word)
        rows[expert, part] = made[expert, part]
        words[expert * per_expert + block] = value


@pytest.mark.parametrize("hook", [False, True])
@pytest.mark.parametrize("form", ["src_signals", "comp_signal"])
@on_group(2)
def test_experts_work_during_combine(group, form, hook):
    """The sums are those of rows that were finished before."""
    buffer = deep_ep.Buffer(group, low_latency_mode=True, explicitly_destroy=True)
    for layer in range(3):
        x, ids, weights = batch(group.rank() + 10 * layer, MAX_TOKENS - layer)
        sums = []
        for overlap in False, True:
            rows, counts, handle, _, receive = buffer.low_latency_dispatch(
                x, ids, MAX_TOKENS, EXPERTS, use_fp8=False, return_recv_hook=hook)
            if hook:
                receive()
            made, late, args = rows.clone() * 2, rows, {}
            if overlap:
                words, rows_per_word, args = words_of(form, *rows.shape[:2])
                value = args.get("threshold", 1)
                late.fill_(float("nan"))
                experts = threading.Thread(target=work, args=(
                    made, late, counts.tolist(), words, rows_per_word, value, layer))
                experts.start()
            out, _, receive = buffer.low_latency_combine(
                late if overlap else made, ids, weights, handle, return_recv_hook=hook,
                overlap=overlap, **args)
            if hook:
                receive()
            if overlap:
                experts.join()
            sums.append(out)
        assert torch.equal(*sums)
    buffer.destroy()


def alone(monkeypatch):
    monkeypatch.setenv("WEFT_MACHINE", "cpu")
    buffer = deep_ep.Buffer(None, low_latency_mode=True, comm=One())
    x, ids = torch.ones(4, HIDDEN).bfloat16(), torch.arange(8).view(4, 2)
    weights = torch.ones(4, 2)
    rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, 4, EXPERTS, use_fp8=False)
    return lambda **args: buffer.low_latency_combine(rows, ids, weights, handle, **args)[0]


def test_words_that_never_come(monkeypatch):
    monkeypatch.setattr(deep_ep.exchange, "TIMEOUT_MS", 300)
    combine = alone(monkeypatch)
    with pytest.raises(weft.Error, match="rank 0 waited for rows of its local expert [0-7]"):
        combine(overlap=True, src_signals=torch.zeros(EXPERTS, dtype=torch.int32),
                src_signal_expect_value=1)


def test_what_is_refused(monkeypatch):
    """By the argument's name; and nothing has changed."""
    combine = alone(monkeypatch)
    words = torch.ones(EXPERTS, dtype=torch.int32)
    of_experts = {"src_signals": words, "src_signal_expect_value": 1}
    of_blocks = {"packed_recv_count": words, "comp_signal": words, "block_m": 4, "threshold": 1,
                 "num_sms": 3}
    for wrong, name in (({}, "overlap needs src_signals"),
                        ({**of_experts, **of_blocks}, "overlap needs src_signals"),
                        ({**of_experts, "src_signal_expect_value": 0}, "src_signal_expect_value"),
                        ({**of_experts, "src_signals": [1] * EXPERTS}, "src_signals is list"),
                        ({**of_experts, "src_signals": words[:-1]}, "src_signals has 15 words"),
                        ({**of_experts, "src_signals": words.long()}, "signals.words is int64"),
                        ({**of_blocks, "threshold": None}, "threshold is None"),
                        ({**of_blocks, "block_m": 0}, "block_m is 0"),
                        ({**of_blocks, "block_m": 3}, "comp_signal has 16 words"),
                        ({**of_blocks, "num_sms": -1}, "num_sms is -1")):
        with pytest.raises(weft.InvalidArgumentError, match=name):
            combine(overlap=True, **wrong)
    with pytest.raises(TypeError, match="unexpected keyword argument 'src_signal'"):
        combine(overlap=True, src_signal=words)
    for args in of_experts, of_blocks:
        for overlap in False, True:
            assert torch.equal(combine(overlap=overlap, **args),
                               torch.full((4, HIDDEN), 2).bfloat16())
