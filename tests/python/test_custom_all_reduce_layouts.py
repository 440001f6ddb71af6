# SPDX-License-Identifier: MIT
"""Custom all-reduce of tensors that are not dense; skipped without PyTorch."""
import pytest
import weft
from ranks import on_ranks
from test_custom_all_reduce import group, of_rank, ops, same, total_of
from torch_ranks import torch


@on_ranks(2)
def test_layouts(comm):
    """Tensors that are not dense, or of two layouts, are summed right or refused. Nothing beside
    out is written."""
    fa = group(comm)
    base = of_rank(comm.rank, (24,), torch.float32)
    total = total_of(2, (24,), torch.float32)

    def view_of(memory, shape, strides, first=0):
        return memory.as_strided(shape, strides, first)

    layouts = [((4, 3), strides) for strides in (
        (3, 1), (1, 4), (0, 1), (1, 0), (1, 1), (6, 2), (4, 1), (1, 5), (0, 0), (2, 8))]
    layouts += [((1, 6), (1, 1)), ((6, 1), (1, 77)), ((2, 1, 3), (1, 9, 2)), ((0, 3), (0, 0))]
    num_right = 0
    for shape, of_inp in layouts:
        for of_out in {strides for other, strides in layouts if other == shape}:
            memory = torch.full((64,), 7.)
            inp, out = view_of(base, shape, of_inp), view_of(memory, shape, of_out, 8)
            inside = torch.zeros(64, dtype=torch.bool)
            inside.as_strided(shape, of_out, 8).fill_(True)
            try:
                ops.all_reduce(fa, inp, out, 0, 0)
                same(out, view_of(total, shape, of_inp))
                num_right += 1
            except weft.InvalidArgumentError:
                assert torch.equal(memory, torch.full((64,), 7.))
            assert torch.equal(memory[~inside], torch.full((64 - int(inside.sum()),), 7.))
    assert num_right == 6
    for operation, given, shape in ((ops.custom_all_gather, (4, 3), (8, 3)),
                                    (ops.custom_reduce_scatter, (8, 3), (4, 3))):
        for is_given_swapped in (True, False):
            tensors = [torch.ones(size[::-1] if is_swapped else size) for size, is_swapped in (
                (given, is_given_swapped), (shape, not is_given_swapped))]
            tensors[not is_given_swapped] = tensors[not is_given_swapped].t()
            with pytest.raises(weft.InvalidArgumentError, match="is not contiguous"):
                operation(fa, *tensors, 0, 0)
    negative = torch.ones(6)._neg_view()
    with pytest.raises(weft.InvalidArgumentError, match="negative view"):
        ops.all_reduce(fa, negative, torch.empty(6), 0, 0)
    both = torch.ones(7)
    with pytest.raises(weft.InvalidArgumentError, match="overlap"):
        ops.all_reduce(fa, both[:6], both[1:], 0, 0)
    ops.dispose(fa)
