# SPDX-License-Identifier: MIT
"""Blocks of memory that processes of a host share by handles of 64 bytes: memory of a GPU by CUDA
IPC, or memory of the host. They belong to no communicator, so ranks can meet in them."""
from __future__ import annotations

import ctypes
import mmap
import os
import struct
from contextlib import contextmanager
from typing import Iterator, NamedTuple

from .abi import Machine
from .communicator import query_machine
from .library import Error, InvalidArgumentError, OutOfMemoryError, UnsupportedError

HANDLE_BYTES = 64


class _Mapping(NamedTuple):
    memory: mmap.mmap
    view: ctypes.Array  # of memory; whose address it is
    descriptor: int | None  # of a block of this process: as long as it is open, others can open it


class HostMemory:
    """The handle tells where other processes find the descriptor, and which file it must be."""

    machine = Machine.CPU
    _layout = struct.Struct("<8sqqqQ")
    _name = b"weftHost"

    def __init__(self) -> None:
        self._mappings: dict[int, _Mapping] = {}

    def allocate(self, num_bytes: int) -> tuple[int, bytes]:
        """Address and handle of a block of zeros."""
        descriptor = os.memfd_create("weft", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, num_bytes)
            address = self._map(descriptor, num_bytes, descriptor)
        except (OSError, ValueError) as error:
            os.close(descriptor)
            raise OutOfMemoryError(f"no {num_bytes} bytes of shared memory: {error}") from None
        handle = self._layout.pack(self._name, os.getpid(), descriptor, num_bytes,
                                   os.fstat(descriptor).st_ino)
        return address, handle.ljust(HANDLE_BYTES, b"\0")

    def open(self, handle: bytes) -> int:
        """The address of another process's block in this one."""
        name, pid, number, num_bytes, file = self._layout.unpack_from(handle)
        if name != self._name:
            raise InvalidArgumentError("handle is not one of memory of the host")
        try:
            descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise InvalidArgumentError(f"handle is of a block that process {pid} does not share "
                                       f"any more: {error}") from None
        try:
            if os.fstat(descriptor).st_ino != file:
                raise InvalidArgumentError(f"handle is of a block that process {pid} has freed")
            return self._map(descriptor, num_bytes, None)
        finally:
            os.close(descriptor)

    def release(self, address: int) -> None:
        """Frees a block of this process's, or closes one of another's."""
        if address not in self._mappings:
            raise InvalidArgumentError(f"{address:#x} is no block that is allocated or open")
        descriptor = self._mappings.pop(address).descriptor
        if descriptor is not None:
            os.close(descriptor)

    def read(self, address: int, num_bytes: int) -> bytes:
        """Bytes of a block."""
        return ctypes.string_at(address, num_bytes)

    def write(self, address: int, data: bytes) -> None:
        """Bytes into a block."""
        ctypes.memmove(address, data, len(data))

    def _map(self, descriptor: int, num_bytes: int, owned: int | None) -> int:
        memory = mmap.mmap(descriptor, num_bytes)
        view = (ctypes.c_char * num_bytes).from_buffer(memory)
        address = ctypes.addressof(view)
        self._mappings[address] = _Mapping(memory, view, owned)
        return address


class _IpcHandle(ctypes.Structure):
    _fields_ = [("data", ctypes.c_ubyte * HANDLE_BYTES)]


class DeviceMemory:
    """Of the device of the calling thread's context, by the driver. Nothing of it waits for, or
    becomes part of, a stream's capture."""

    machine = Machine.CUDA
    # A handle opens the whole block of the driver's that memory lies in. Blocks are so large.
    _granularity = 2 << 20
    _lazy_peer_access, _non_blocking, _relaxed_capture, _deinitialized = 1, 1, 2, 4

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._is_own: dict[int, bool] = {}  # by address

    def allocate(self, num_bytes: int) -> tuple[int, bytes]:
        """Address and handle of a block of zeros."""
        address, handle = ctypes.c_uint64(), _IpcHandle()
        num_bytes = -(-num_bytes // self._granularity) * self._granularity
        with self._context():
            self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(num_bytes))
            self._is_own[address.value] = True
            self._run("cuMemsetD8Async", address, ctypes.c_ubyte(0), ctypes.c_size_t(num_bytes))
            self._call("cuIpcGetMemHandle", ctypes.byref(handle), address)
        return address.value, bytes(handle)

    def open(self, handle: bytes) -> int:
        """The address of another process's block in this one."""
        address = ctypes.c_uint64()
        with self._context():
            self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address),
                       _IpcHandle.from_buffer_copy(handle), ctypes.c_uint(self._lazy_peer_access))
        self._is_own[address.value] = False
        return address.value

    def release(self, address: int) -> None:
        """Frees a block of this process's, or closes one of another's."""
        if address not in self._is_own:
            raise InvalidArgumentError(f"{address:#x} is no block that is allocated or open")
        function = "cuMemFree_v2" if self._is_own.pop(address) else "cuIpcCloseMemHandle"
        with self._context():
            self._call(function, ctypes.c_uint64(address), allowed=self._deinitialized)

    def read(self, address: int, num_bytes: int) -> bytes:
        """Bytes of a block."""
        data = ctypes.create_string_buffer(num_bytes)
        with self._context():
            self._run("cuMemcpyDtoHAsync_v2", data, ctypes.c_uint64(address),
                      ctypes.c_size_t(num_bytes))
        return data.raw

    def write(self, address: int, data: bytes) -> None:
        """Bytes into a block."""
        with self._context():
            self._run("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), data,
                      ctypes.c_size_t(len(data)))

    def _call(self, name: str, *arguments, allowed: int = 0) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result not in (0, allowed):
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(result, ctypes.byref(text))
            raise Error(f"{name} failed: {(text.value or b'unknown error').decode()} ({result})")

    def _run(self, name: str, *arguments) -> None:
        """A call that takes a stream, on one of its own, and its end."""
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(self._non_blocking))
        try:
            self._call(name, *arguments, stream)
            self._call("cuStreamSynchronize", stream)
        finally:
            self._call("cuStreamDestroy_v2", stream)

    @contextmanager
    def _context(self) -> Iterator[None]:
        """PyTorch's context, and calls that a capture under way would forbid."""
        current = ctypes.c_void_p()
        if self._driver.cuCtxGetCurrent(ctypes.byref(current)) != 0 or not current:
            from .torch import make_context

            make_context()
        mode = ctypes.c_int(self._relaxed_capture)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode),
                   allowed=self._deinitialized)
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode),
                       allowed=self._deinitialized)


_memories: dict[Machine, HostMemory | DeviceMemory] = {}


def memory() -> HostMemory | DeviceMemory:
    """That of the machine which communicators of this process get."""
    chosen = query_machine()
    reason = chosen.reason
    if chosen.is_usable and chosen.machine == Machine.CPU and not os.environ.get("WEFT_MACHINE"):
        import torch

        if torch.cuda.is_available():  # so tensors will be there
            reason = query_machine(Machine.CUDA).reason
    if reason:
        raise UnsupportedError(f"weft cannot use the GPUs: {reason.decode(errors='replace')}; "
                               "WEFT_MACHINE=cpu is for tensors on the host")
    machine = Machine(chosen.machine)
    if machine not in _memories:
        _memories[machine] = {Machine.CPU: HostMemory, Machine.CUDA: DeviceMemory}[machine]()
    return _memories[machine]
