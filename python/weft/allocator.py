# SPDX-License-Identifier: MIT
"""The C functions (python/pool/pool.c) through which PyTorch allocates in arenas."""
from __future__ import annotations

import ctypes
import os
from typing import Any

from .library import OutOfMemoryError, lib
from .objects import Native

LIBRARY = os.path.join(os.path.dirname(__file__), "libweft_pool.so")
_loaded: list[Any] = []


class _Functions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in (
        "arena_alloc", "arena_free", "outside_alloc", "outside_free")]


def _load() -> Any:
    if not _loaded:
        shim = ctypes.CDLL(LIBRARY)
        shim.pool_num_blocks.restype = ctypes.c_int64
        shim.pool_add.argtypes = [ctypes.c_int32, ctypes.c_void_p]
        _loaded.append(shim)
    return _loaded[0]


class Allocator:
    """Two C functions that give memory of arenas; where these are full none, or that of two
    functions of the form of cuMemAlloc and cuMemFree."""

    def __init__(self, outside: tuple[Any, Any] | None = None):
        functions = _Functions(*(ctypes.cast(function, ctypes.c_void_p).value for function in (
            lib["weft_arena_alloc"], lib["weft_arena_free"], *(outside or ()))))
        self._outside = outside  # which C may call
        self._shim = _load()
        self._pool_idx = self._shim.pool_open(ctypes.byref(functions))
        if self._pool_idx < 0:
            raise OutOfMemoryError("too many pools of tensors are open in this process")
        suffix = f"{self._pool_idx // 8}{self._pool_idx % 8}"
        self.names = f"pool_alloc_{suffix}", f"pool_free_{suffix}"  # in LIBRARY

    def add(self, arena: Native) -> None:
        """An arena that is used by nobody else, until close()."""
        if self._shim.pool_add(self._pool_idx, arena.pointer()) != 0:
            raise OutOfMemoryError("a pool of tensors has too many arenas")

    def num_blocks(self) -> int:
        """Of arenas, also after close()."""
        return self._shim.pool_num_blocks(self._pool_idx)

    def close(self) -> None:
        """Uses its arenas no more, so that they may end."""
        self._shim.pool_close(self._pool_idx)

    def give_back(self) -> None:
        """Nobody calls its functions any more, but to free what they gave."""
        self._shim.pool_give_back(self._pool_idx)
