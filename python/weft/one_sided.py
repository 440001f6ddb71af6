# SPDX-License-Identifier: MIT
"""One-sided operations: access to the heap of any rank, in which that rank takes no part.

Arrays that name memory of another rank are the caller's own, in the heap, and mean the same place
on that rank. dst and src are [...] of any dtype. word and before are [1] of int64 or uint64, in the
heap: words[3:4] of an array. Set words before others use them. Without a stream the operations
return when they are done, which says nothing about their target: see quiet().
"""
from __future__ import annotations

from operator import index
from typing import Any

from . import abi
from .communicator import Communicator
from .library import InvalidArgumentError, lib
from .streams import Stream


def _enqueue(function, comm: Communicator, stream: Stream | None, *, dst: Any = None,
             src: Any = None, word: Any = None, before: Any = None, value: int = 0,
             rank: int = 0) -> None:
    args = abi.RmaArgs(rank=rank, value=index(value) % 2**64)
    if dst is not None:
        written = comm.view(dst, "dst", writable=True)
        read = comm.view(src, "src")
        if written.num_bytes != read.num_bytes:
            raise InvalidArgumentError(
                f"dst has {written.num_bytes} bytes, src {read.num_bytes}; they must be as many")
        args.dst, args.src, args.bytes = written.address, read.address, read.num_bytes
    args.word = _word(comm, word, "word")
    args.before = _word(comm, before, "before")
    comm.enqueue(function, comm._native, args, stream, dst, src, word, before)


def _word(comm: Communicator, word: Any, name: str) -> int | None:
    if word is None:
        return None
    seen = comm.view(word, name, writable=True)
    if seen.num_bytes != 8 or seen.dtype not in ("int64", "uint64"):
        raise InvalidArgumentError(f"{name} is {seen.dtype}{list(seen.shape)}; it must be one "
                                   "element of int64 or uint64")
    return seen.address


def put(comm: Communicator, dst: Any, src: Any, rank: int, stream: Stream | None = None) -> None:
    """dst at `rank` = src here; both in the heap, of as many bytes."""
    _enqueue(lib.weft_rma_put, comm, stream, dst=dst, src=src, rank=rank)


def get(comm: Communicator, dst: Any, src: Any, rank: int, stream: Stream | None = None) -> None:
    """dst here = src at `rank`."""
    _enqueue(lib.weft_rma_get, comm, stream, dst=dst, src=src, rank=rank)


def put_signal(comm: Communicator, dst: Any, src: Any, word: Any, value: int, rank: int,
               stream: Stream | None = None) -> None:
    """A put, and then word += value at `rank`."""
    _enqueue(lib.weft_rma_put_signal, comm, stream, dst=dst, src=src, word=word, value=value,
             rank=rank)


def signal(comm: Communicator, word: Any, value: int, rank: int,
           stream: Stream | None = None) -> None:
    """word += value at `rank`: a put_signal of no bytes."""
    _enqueue(lib.weft_rma_signal, comm, stream, word=word, value=value, rank=rank)


def add(comm: Communicator, word: Any, value: int, rank: int,
        stream: Stream | None = None) -> None:
    """word += value at `rank`, atomically; modulo 2^64."""
    _enqueue(lib.weft_rma_add, comm, stream, word=word, value=value, rank=rank)


def fetch_add(comm: Communicator, word: Any, value: int, before: Any, rank: int,
              stream: Stream | None = None) -> None:
    """The same; before, one element here, gets what the word was."""
    _enqueue(lib.weft_rma_fetch_add, comm, stream, word=word, value=value, before=before, rank=rank)


def wait_until(comm: Communicator, word: Any, value: int, stream: Stream | None = None) -> None:
    """Waits until this rank's word is `value` or more."""
    _enqueue(lib.weft_rma_wait_until, comm, stream, word=word, value=value)


def fence(comm: Communicator, stream: Stream | None = None) -> None:
    """What comes after it is visible at each rank only after what came before."""
    comm.enqueue(lib.weft_rma_fence, comm._native, (), stream)


def quiet(comm: Communicator, stream: Stream | None = None) -> None:
    """Finishes when all that this rank did before is visible at its targets."""
    comm.enqueue(lib.weft_rma_quiet, comm._native, (), stream)
