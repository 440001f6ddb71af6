# SPDX-License-Identifier: MIT
"""Arithmetic of test programs."""
from __future__ import annotations

from typing import Any, Iterator

import torch

GROUP_ELEMENTS = 128
FP8_MAX = 448.0


def ceil_div(x: int, y: int) -> int:
    return (x + y - 1) // y


def align(x: int, y: int) -> int:
    """The least multiple of y that is not less than x."""
    return ceil_div(x, y) * y


def safe_div(a: float, b: float) -> float:
    """0 if b is 0."""
    return a / b if b else 0


def calc_diff(x: torch.Tensor, y: torch.Tensor) -> float:
    """0 for equal tensors; 1 is added to both, so that zeros count."""
    x, y = x.double() + 1, y.double() + 1
    return (1 - 2 * (x * y).sum() / (x * x + y * y).sum()).item()


def per_token_cast_to_fp8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows in groups of 128, the last one padded with zeros: FP8, and a float scale for each."""
    num_rows, hidden = x.shape
    padded = torch.nn.functional.pad(x, (0, -hidden % GROUP_ELEMENTS))
    groups = padded.view(num_rows, padded.shape[1] // GROUP_ELEMENTS, GROUP_ELEMENTS)
    greatest = groups.abs().float().amax(2).clamp(1e-4)
    narrow = (groups * (FP8_MAX / greatest).unsqueeze(2)).to(torch.float8_e4m3fn)
    return narrow.view(padded.shape)[:, :hidden].contiguous(), greatest / FP8_MAX


def per_token_cast_back(x: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """The way back, to BF16; scales of bytes are exponents, four in an int32."""
    if x.numel() == 0:
        return x.to(torch.bfloat16)
    num_rows, hidden = x.shape
    x = torch.nn.functional.pad(x.float(), (0, -hidden % GROUP_ELEMENTS))
    if scales.dtype == torch.int32:
        exponents = scales.contiguous().view(torch.uint8).to(torch.int32)
        scales = (exponents << 23).view(torch.float32)
    groups = x.view(num_rows, -1, GROUP_ELEMENTS) * scales.reshape(num_rows, -1, 1)
    return groups.view(x.shape)[:, :hidden].to(torch.bfloat16).contiguous()


def inplace_unique(x: torch.Tensor, num_slots: int) -> None:
    """Each row becomes its distinct values that are not negative, descending, then -1."""
    is_there = torch.zeros((x.shape[0], num_slots + 1), dtype=torch.bool, device=x.device)
    is_there.scatter_(1, x.masked_fill(x < 0, num_slots).long(), True)
    values = torch.arange(num_slots, dtype=x.dtype, device=x.device)
    distinct = torch.where(is_there[:, :num_slots], values, -1).sort(1, descending=True).values
    width = min(num_slots, x.shape[1])
    x.fill_(-1)
    x[:, :width] = distinct[:, :width]


def create_grouped_scores(scores: torch.Tensor, group_idx: torch.Tensor,
                          num_groups: int) -> torch.Tensor:
    """Scores [tokens, experts] with 0 outside the chosen groups of experts."""
    num_tokens, num_experts = scores.shape
    is_chosen = torch.zeros((num_tokens, num_groups), dtype=torch.bool, device=scores.device)
    is_chosen.scatter_(1, group_idx, True)
    return scores * is_chosen.repeat_interleave(num_experts // num_groups, 1)


def hash_tensor(t: torch.Tensor) -> int:
    return t.contiguous().view(torch.int32).sum().item()


def hash_tensors(*tensors: Any) -> int:
    """Of tensors, of tuples and lists of them, or of None."""
    return sum(map(hash_tensor, _flat(tensors)))


def count_bytes(*tensors: Any) -> int:
    """Likewise."""
    return sum(t.nbytes for t in _flat(tensors))


def _flat(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
        elif value is not None:
            yield value
