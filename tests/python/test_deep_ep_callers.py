# SPDX-License-Identifier: MIT
"""The calls of frameworks, argument by argument as they write them; skipped without PyTorch. What
comes of them other tests check."""
import pytest
from test_deep_ep import EXPERTS, HIDDEN, TOPK, batch, deep_ep
from torch_ranks import One, in_group, on_group, torch

import torch.distributed.tensor  # for torch.testing: once, before ranks are forked

MAX_TOKENS = 16


def normal(buffer, x, ids, weights, layout_args, **more):
    """Experts return their rows: each token comes back as often as it has ranks."""
    per_rank, per_rdma_rank, per_expert, in_rank, event = buffer.get_dispatch_layout(
        topk_idx=ids, num_experts=EXPERTS, **layout_args)
    rows, got_ids, got_weights, counts, handle, event = buffer.dispatch(
        x=x, topk_idx=ids, topk_weights=weights, num_tokens_per_rank=per_rank,
        num_tokens_per_rdma_rank=per_rdma_rank, is_token_in_rank=in_rank,
        num_tokens_per_expert=per_expert, **more)
    assert isinstance(counts, list)
    rows = rows[0].bfloat16() if isinstance(rows, tuple) else rows
    more.pop("expert_alignment", None), more.pop("handle", None)
    out, _, event = buffer.combine(x=rows, handle=handle, topk_weights=got_weights, **more)
    assert torch.equal(out, (x.float() * in_rank.sum(1, keepdim=True)).bfloat16())


def low_latency(buffer, x, ids, weights, combine_args, **dispatch_args):
    rows, counts, handle, event, hook = buffer.low_latency_dispatch(
        x, ids, MAX_TOKENS, EXPERTS, **dispatch_args)
    if hook is not None:
        hook()
    rows = rows[0] if isinstance(rows, tuple) else rows
    answers = torch.ones(rows.shape, dtype=torch.bfloat16)
    out, event, hook = buffer.low_latency_combine(
        x=answers, topk_idx=ids, topk_weights=weights, handle=handle, **combine_args)
    if hook is not None:
        hook()
    expected = weights.masked_fill(ids < 0, 0).sum(1, keepdim=True).expand_as(out)
    torch.testing.assert_close(out.float(), expected, atol=2e-2, rtol=2e-2)


def vllm(group):
    x, ids, weights = batch(group.rank(), 8)
    buffer = deep_ep.Buffer(group=group, num_nvl_bytes=1 << 20, num_rdma_bytes=0,
                            low_latency_mode=False, num_qps_per_rank=1, explicitly_destroy=True)
    deep_ep.Buffer.set_num_sms(20)
    event = buffer.capture()
    how = {"previous_event": event, "async_finish": False, "allocate_on_comm_stream": False}
    normal(buffer, x, ids, weights, how, handle=None, expert_alignment=1,
           config=deep_ep.Buffer.get_dispatch_config(group.size()), **how)
    buffer.destroy()
    num_bytes = deep_ep.Buffer.get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank=MAX_TOKENS, hidden=HIDDEN, num_ranks=group.size(),
        num_experts=EXPERTS)
    buffer = deep_ep.Buffer(group=group, num_nvl_bytes=1 << 20, num_rdma_bytes=num_bytes,
                            low_latency_mode=True, num_qps_per_rank=EXPERTS // group.size(),
                            allow_nvlink_for_low_latency_mode=True, allow_mnnvl=False,
                            explicitly_destroy=True, enable_shrink=False)
    for scaled in {}, {"round_scale": True}, {"round_scale": True, "use_ue8m0": True}:
        low_latency(buffer, x, ids, weights,
                    {"async_finish": False, "zero_copy": False, "return_recv_hook": True,
                     "out": torch.empty_like(x)},
                    use_fp8=True, **scaled, async_finish=False, return_recv_hook=True)
    assert buffer.get_local_buffer_tensor(dtype=torch.int8, use_rdma_buffer=True).numel()
    buffer.destroy()


def sglang(group):
    x, ids, weights = batch(group.rank(), 8)
    buffer = deep_ep.Buffer(group, 1 << 20, 1 << 20, low_latency_mode=True, num_qps_per_rank=8,
                            allow_mnnvl=True, use_fabric=True)
    assert deep_ep.Buffer.num_sms
    event = buffer.capture()
    how = {"previous_event": event, "async_finish": True, "allocate_on_comm_stream": True}
    normal(buffer, x, ids, weights, how, expert_alignment=128,
           config=deep_ep.Config(20, 8, 256), **how)
    buffer.clean_low_latency_buffer(MAX_TOKENS, HIDDEN, EXPERTS)
    words = torch.ones(EXPERTS // group.size(), dtype=torch.uint32)
    num_blocks = -(-group.size() * MAX_TOKENS // 64) * len(words)
    for overlapped in (
            {}, {"overlap": False, "src_signals": None, "src_signal_expect_value": 0},
            {"overlap": True, "src_signals": words, "src_signal_expect_value": 1},
            {"overlap": True, "packed_recv_count": words.int(),
             "comp_signal": torch.ones(num_blocks, dtype=torch.int32), "block_m": 64,
             "threshold": 1, "num_sms": 3}):
        for hook in False, True:
            low_latency(buffer, x, ids, weights,
                        {"async_finish": not hook, "return_recv_hook": hook, **overlapped},
                        use_fp8=True, use_nvfp4=False, x_global_scale=None, async_finish=not hook,
                        return_recv_hook=hook, round_scale=False, use_ue8m0=False)


def megatron(group):
    x, ids, weights = batch(group.rank(), 8)
    buffer = deep_ep.Buffer(group, 1 << 20, 0)
    event = deep_ep.utils.EventOverlap(deep_ep.utils.EventHandle())
    how = {"previous_event": event, "async_finish": True, "allocate_on_comm_stream": True}
    normal(buffer, x, ids, weights, how, **how)


@pytest.mark.parametrize("caller", [vllm, sglang, megatron])
def test_callers(caller):
    in_group(caller, 2)


def test_tensorrt_llm(monkeypatch):
    monkeypatch.setenv("WEFT_MACHINE", "cpu")
    x, ids, weights = batch(0, 8)
    buffer = deep_ep.Buffer(None, 0, 0, num_nvl_peers=8, comm=One())
    normal(buffer, x, ids, weights, {})
    buffer = deep_ep.Buffer(None, 0, 1 << 20, low_latency_mode=True, num_nvl_peers=8, comm=One(),
                            num_qps_per_rank=EXPERTS, allow_nvlink_for_low_latency_mode=True)
    low_latency(buffer, x, ids, weights, {"return_recv_hook": False}, use_fp8=False)


@on_group(2)
def test_callers_of_elastic_buffer(group):
    """vLLM, SGLang, TorchTitan and DeepSpeed, prefill and decode."""
    x, ids, weights = batch(group.rank(), 8)
    hint = deep_ep.ElasticBuffer.get_buffer_size_hint(
        group, MAX_TOKENS, HIDDEN, num_topk=TOPK, use_fp8_dispatch=False)
    sizes = {"num_max_tokens_per_rank": MAX_TOKENS, "hidden": HIDDEN, "num_topk": TOPK,
             "use_fp8_dispatch": False}
    for options in (
            {**sizes, "allow_hybrid_mode": True, "prefer_overlap_with_compute": True,
             "allow_multiple_reduction": True, "explicitly_destroy": True},
            {**sizes, "num_bytes": hint, "deterministic": True, "explicitly_destroy": True},
            {**sizes, "sl_idx": 0, "explicitly_destroy": True},
            {**sizes, "num_allocated_qps": 17, "explicitly_destroy": True}):
        buffer = deep_ep.ElasticBuffer(group=group, **options)
        assert buffer.num_bytes
        num_sms = buffer.get_theoretical_num_sms(num_experts=EXPERTS, num_topk=TOPK)
        for expands, waits in (True, True), (True, False), (False, True), (False, False):
            rows, _, got_weights, handle, _ = buffer.dispatch(
                x=x, topk_idx=ids, topk_weights=weights, num_experts=EXPERTS,
                num_max_tokens_per_rank=MAX_TOKENS, expert_alignment=128, num_sms=num_sms,
                do_expand=expands, do_cpu_sync=waits, async_with_compute_stream=False,
                use_tma_aligned_col_major_sf=False)
            assert handle.topk_idx is not None and handle.num_sms == num_sms
            assert len(handle.psum_num_recv_tokens_per_scaleup_rank)
            assert not waits or handle.num_recv_tokens_per_expert_list is not None
            out, _, _ = buffer.combine(x=rows, handle=handle, topk_weights=None,
                                       num_sms=num_sms, async_with_compute_stream=False,
                                       allocate_on_comm_stream=False)
            assert out.shape == x.shape
            buffer.dispatch(x, handle=handle, do_expand=handle.do_expand,
                            num_sms=handle.num_sms)
        buffer.destroy()
