# SPDX-License-Identifier: MIT
"""Memory of the library as tensors, by DLPack.

__cuda_array_interface__ has no device: PyTorch asks the driver whose the memory is, which of other
ranks' memory is another GPU, although this one maps it.
"""
from __future__ import annotations

import atexit
import ctypes
from typing import Any

_CPU, _CUDA, _UNSIGNED = 1, 2, 1


class _Tensor(ctypes.Structure):  # DLTensor of uint8
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_idx", ctypes.c_int32), ("num_dimensions", ctypes.c_int32),
                ("type_code", ctypes.c_uint8), ("type_bits", ctypes.c_uint8),
                ("type_lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("offset_bytes", ctypes.c_uint64)]


class _Managed(ctypes.Structure):  # DLManagedTensor
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_lent: dict[int, tuple[Any, ...]] = {}  # by address of a _Managed: what it refers to
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _give_back(managed: int) -> None:
    _lent.pop(managed, None)


@atexit.register
def _leave_to_system() -> None:
    """Tensors may end after the interpreter, when nothing of it may be called any more."""
    for managed, *_ in _lent.values():
        managed.deleter = None
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(managed))


def tensor_of(owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...],
              cuda_device: int | None) -> Any:
    """A tensor of uint8, which keeps `owner` as long as its memory is used."""
    import torch

    if cuda_device is not None:
        torch.cuda.init()
    dimensions = ctypes.c_int64 * len(shape)
    sizes, steps = dimensions(*shape), dimensions(*strides)
    managed = _Managed(_Tensor(
        address, _CPU if cuda_device is None else _CUDA, cuda_device or 0, len(shape), _UNSIGNED,
        8, 1, ctypes.addressof(sizes), ctypes.addressof(steps), 0), None,
        ctypes.cast(_give_back, ctypes.c_void_p))
    key = ctypes.addressof(managed)
    _lent[key] = (managed, sizes, steps, owner)
    return torch.utils.dlpack.from_dlpack(_new_capsule(key, b"dltensor", None))
