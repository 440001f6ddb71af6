# SPDX-License-Identifier: MIT
"""A low-latency combine that begins while the experts work (SGLang's single-batch overlap)."""
from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
import weft
from weft import InvalidArgumentError

ARGUMENTS = {"src_signals", "src_signal_expect_value", "packed_recv_count", "comp_signal",
             "block_m", "threshold", "num_sms"}
USUAL_SMS = 32  # that SGLang leaves to combine on Blackwell, where it does not say so


class Overlap(NamedTuple):
    """Words that the experts raise: one of each expert (Blackwell), or of each block of rows
    (Hopper); and the SMs that combine may take."""

    words: torch.Tensor
    name: str  # of the words' argument
    value: int
    rows: int  # of a block; 0: all of an expert
    num_sms: int

    def signals(self, num_local: int, capacity: int) -> weft.RowSignals:
        """Words of blocks lie side by side; there may be more of them."""
        per_expert = -(-capacity // self.rows) if self.rows else 1
        words = self.words.reshape(-1)[:num_local * per_expert]
        if len(words) < num_local * per_expert:
            raise InvalidArgumentError(f"{self.name} has {len(words)} words; {num_local} local "
                                       f"experts need {per_expert} each")
        return weft.RowSignals(words.view(num_local, per_expert), self.value, self.rows)


def overlap_of(overlap: bool, arguments: dict[str, Any]) -> Overlap | None:
    """packed_recv_count is what weft's dispatch has counted itself."""
    unknown = arguments.keys() - ARGUMENTS
    if unknown:
        raise TypeError("low_latency_combine() got an unexpected keyword argument "
                        f"'{min(unknown)}'")
    if not overlap:
        return None
    of_experts, of_blocks = (_words(name, arguments) for name in ("src_signals", "comp_signal"))
    if (of_experts is None) == (of_blocks is None):
        raise InvalidArgumentError(
            "overlap needs src_signals, words of experts, or comp_signal, words of blocks of rows")
    if of_experts is not None:
        return Overlap(of_experts, "src_signals",
                       _positive("src_signal_expect_value", arguments), 0, USUAL_SMS)
    return Overlap(of_blocks, "comp_signal", _positive("threshold", arguments),
                   _positive("block_m", arguments), _positive("num_sms", arguments))


def _words(name: str, arguments: dict[str, Any]) -> torch.Tensor | None:
    words = arguments.get(name)
    if words is None or isinstance(words, torch.Tensor) and words.is_contiguous():
        return words
    raise InvalidArgumentError(f"{name} is {type(words).__name__}; it must be a dense tensor")


def _positive(name: str, arguments: dict[str, Any]) -> int:
    value = arguments.get(name)
    if weft.abi.whole(name, 0 if value is None else value, ctypes.c_int32) < 1:
        raise InvalidArgumentError(f"{name} is {value}; with overlap it must be 1 or more")
    return value
