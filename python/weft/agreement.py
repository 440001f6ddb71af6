# SPDX-License-Identifier: MIT
"""Ranks that are about to dispatch different things find this out before one of them enters a
collective that another one does not enter. The tag of layout() stands for the terms, which must be
equal on all ranks. notify() gives every rank the tags of all ranks, beside the counts."""
from __future__ import annotations

import functools
import json
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .library import MismatchError

if TYPE_CHECKING:
    from .communicator import Communicator

TEXT_BYTES = 4096


class Rows(NamedTuple):
    """The rows of an argument [N, *shape].

    - dtype: the type of an element
    - shape: the shape of one row
    """

    dtype: Any
    shape: tuple[int, ...]

    def __str__(self) -> str:
        sizes = ", ".join(["N", *map(str, self.shape)])
        return f"{str(self.dtype).removeprefix('torch.')}[{sizes}]"


Terms = tuple[tuple[str, Any], ...]  # an argument's name, and its value


@functools.lru_cache(maxsize=1024)
def tag_of(terms: Terms) -> int:
    """A number that follows from the terms alone, so that it is equal in all processes."""
    return zlib.crc32(repr(terms).encode()) & 0x7FFFFFFF


def _described(value: Any) -> str:
    is_list = isinstance(value, tuple) and not isinstance(value, Rows)
    return " and ".join(map(str, value)) if is_list else str(value)


def refuse(comm: Communicator, terms: Terms) -> NoReturn:
    """Raises MismatchError, which names the argument and both values. Collective: all ranks have
    seen that tags differ."""
    text = json.dumps([(name, _described(value)[:200]) for name, value in terms]).encode()
    texts = comm.host_all_gather(text.ljust(TEXT_BYTES)[:TEXT_BYTES])
    everybody = [dict(json.loads(theirs)) for theirs in texts]
    mine = everybody[comm.rank]
    for rank, theirs in enumerate(everybody):
        for name in {**mine, **theirs}:
            if mine.get(name) != theirs.get(name):
                raise MismatchError(
                    f"ranks disagree on {name}: it is {mine.get(name)} on this rank {comm.rank}, "
                    f"{theirs.get(name)} on rank {rank}")
    raise MismatchError("ranks disagree on what they dispatch")
