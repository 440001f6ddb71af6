# SPDX-License-Identifier: MIT
"""How ranks find out that they are about to dispatch different things, before one of them goes to a
collective that another one will not come to. The tag of layout() stands for what must be the same;
with the counts of notify() every rank has everybody's."""
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
    """Of an argument [N, *shape].

    - dtype: of its elements
    - shape: of a row
    """

    dtype: Any
    shape: tuple[int, ...]

    def __str__(self) -> str:
        sizes = ", ".join(["N", *map(str, self.shape)])
        return f"{str(self.dtype).removeprefix('torch.')}[{sizes}]"


Terms = tuple[tuple[str, Any], ...]  # by name of an argument


@functools.lru_cache(maxsize=1024)
def tag_of(terms: Terms) -> int:
    """The same on all ranks for the same terms, also in different processes."""
    return zlib.crc32(repr(terms).encode()) & 0x7FFFFFFF


def _described(value: Any) -> str:
    is_list = isinstance(value, tuple) and not isinstance(value, Rows)
    return " and ".join(map(str, value)) if is_list else str(value)


def refuse(comm: Communicator, terms: Terms) -> NoReturn:
    """MismatchError, which names the argument and both values. Collective: all ranks have
    seen different tags."""
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
