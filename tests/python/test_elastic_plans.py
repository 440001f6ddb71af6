# SPDX-License-Identifier: MIT
"""DeepEP's V2 on weft: copies of experts (EPBuffer's load balance), and the plans of their memory;
skipped without PyTorch."""
import sys

import pytest
import weft
from torch_ranks import on_group, torch
from weft.drop_in import folder

sys.path.insert(0, folder())
import deep_ep  # noqa: E402
from test_elastic import LOCAL, generator_of  # noqa: E402

SLOTS = 2


def mapping_of(num_ranks, seed):
    return torch.randint(-1, LOCAL * num_ranks, (num_ranks, SLOTS), dtype=torch.int32,
                         generator=generator_of(seed))


def gradients_of(rank, rows, seed):
    return torch.randn(rows, 5, generator=generator_of(rank, rows, seed)) * 1000


@on_group(3)
def test_redundant_experts(group):
    """Copies have the weights of their experts; owners add the gradients of copies in the order of
    ranks and slots."""
    rank, num_ranks = group.rank(), group.size()
    plan = deep_ep.BufferAllocator()
    copies = [plan.allocate((SLOTS, 3, 4), torch.bfloat16), plan.allocate((SLOTS, 7), torch.int32)]
    copied_gradients = plan.allocate((SLOTS, 5), torch.float32)
    buffer = deep_ep.EPBuffer(group, lb_allocation_plan_or_num_bytes=plan)
    ids = torch.arange(LOCAL) + LOCAL * rank
    weights = [ids.to(torch.bfloat16).view(-1, 1).expand(LOCAL, 12).contiguous(),
               (ids + 100).to(torch.int32).view(-1, 1).expand(LOCAL, 7).contiguous()]
    for seed in range(4):
        mapping = mapping_of(num_ranks, seed)
        for tensor in copies:
            tensor.fill_(-1)
        event = buffer.lb_prefetch_weights(copies, weights, mapping)
        event.current_stream_wait()
        for slot, expert in enumerate(mapping[rank].tolist()):
            assert (copies[0][slot] == expert).all()  # -1 is what it was
            assert (copies[1][slot] == (expert + 100 if expert >= 0 else -1)).all()

        copied_gradients.copy_(gradients_of(rank, SLOTS, seed))
        gradients = gradients_of(rank, LOCAL, seed)
        wanted = gradients.clone()
        for other in range(num_ranks):
            for slot, expert in enumerate(mapping[other].tolist()):
                if expert in ids:
                    wanted[expert - LOCAL * rank] += gradients_of(other, SLOTS, seed)[slot]
        buffer.lb_reduce_grads(copied_gradients, gradients, mapping, previous_event=event)
        assert torch.equal(gradients, wanted)
    assert buffer.lb_get_theoretical_num_sms() % 2 == 0
    nothing = torch.full_like(mapping, -1)
    for text, arguments in {
            "must be in memory that": ([tensor.clone() for tensor in copies], weights, mapping),
            "as many bytes": (copies[0], weights[1], mapping),
            "must have one type and as many bytes":
                (copies[1], weights[1].view(torch.float32), mapping),
            r"expert_weights have \[3, 2\] rows": (copies, [weights[0], weights[1][:2]], nothing),
            "1 tensors, expert_weights 2": (copies[:1], weights, mapping),
            "must be int32": (copies, weights, mapping.long()),
            "redundancy_mapping has 9, allowed are -1..8": (copies, weights, mapping * 0 + 9),
            "as many as redundancy_mapping has slots": (copies, weights, mapping[:, :1])}.items():
        with pytest.raises(weft.InvalidArgumentError, match=text):
            buffer.lb_prefetch_weights(*arguments)
    with pytest.raises(weft.InvalidArgumentError, match="must be float32"):
        buffer.lb_reduce_grads(copies[1], weights[1], mapping)


@on_group(2)
def test_redundant_experts_without_mapped_memory(group):
    """All ranks learn that one of them cannot map another one's memory."""
    on_rank = weft.Communicator.on_rank
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weft.Communicator, "on_rank", lambda comm, array, rank:
                      None if (comm.rank, rank) == (1, 0) else on_rank(comm, array, rank))
        with pytest.raises(weft.UnsupportedError, match="of rank 0 cannot be mapped on rank 1"):
            deep_ep.EPBuffer(group, lb_allocation_plan_or_num_bytes=64)


def test_plans_of_memory():
    plan = deep_ep.BufferAllocator()
    tensors = [plan.allocate((3, 5), torch.bfloat16), plan.allocate(7, torch.float32)]
    storage = torch.arange(plan.num_bytes).to(torch.uint8)
    plan.materialize(storage)
    assert [tensor.data_ptr() - storage.data_ptr() for tensor in tensors] == [0, plan.alignment]
    assert tensors[0].shape == (3, 5) and tensors[1].dtype == torch.float32
    with pytest.raises(AssertionError, match="the plan has its memory"):
        plan.allocate(1, torch.float32)


@on_group(2)
def test_refused_plans(group):
    """No communicator is made for them."""
    buffer = deep_ep.EPBuffer(group, lb_allocation_plan_or_num_bytes=None)
    assert buffer.num_lb_bytes == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weft, "Communicator", None)
        with pytest.raises(weft.InvalidArgumentError, match="lb_allocation_plan"):
            deep_ep.EPBuffer(group, lb_allocation_plan_or_num_bytes=-1)
        with pytest.raises(AssertionError, match="the plan has its memory"):
            plan = deep_ep.BufferAllocator()
            plan.materialize(torch.empty(0, dtype=torch.uint8))
            deep_ep.EPBuffer(group, lb_allocation_plan_or_num_bytes=plan)
