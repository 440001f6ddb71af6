# SPDX-License-Identifier: MIT
"""Loads libweft and makes its errors exceptions. Nothing here, or at import, touches a GPU."""
from __future__ import annotations

import ctypes
import os
from typing import Any

from . import abi
from .abi import Result


class Error(RuntimeError):
    """What weft refuses, or what failed. The text is weft's own message.

    code: abi.Result, one of ERROR_*. rank: the rank that failed, or None if no rank did.
    """

    code = Result.ERROR_SYSTEM

    def __init__(self, message: str, code: Result | None = None, rank: int | None = None):
        super().__init__(message)
        self.code = self.code if code is None else code
        self.rank = rank

    def __reduce__(self):  # as results of other processes come
        return type(self), (str(self), self.code, self.rank)


class InvalidArgumentError(Error, ValueError):
    """The message names argument, value and what is allowed. Nothing was done."""

    code = Result.ERROR_INVALID_ARGUMENT


class OutOfMemoryError(Error, MemoryError):
    """No memory, of the host or of the heap."""

    code = Result.ERROR_OUT_OF_MEMORY


class UnsupportedError(Error, NotImplementedError):
    """Legal, but not in this build or on this machine."""

    code = Result.ERROR_UNSUPPORTED


class WaitTimeoutError(Error, TimeoutError):
    """A wait passed its deadline; the message names the awaited rank."""

    code = Result.ERROR_TIMEOUT


class RankFailedError(Error, ConnectionError):
    """A rank died, or the rendezvous did."""

    code = Result.ERROR_RANK_FAILED


class AbortedError(Error):
    """Some rank called abort()."""

    code = Result.ERROR_ABORTED


class MismatchError(Error, ValueError):
    """Ranks called with arguments that do not fit together."""

    code = Result.ERROR_MISMATCH


class CapacityError(Error):
    """More rows arrived than the output could hold."""

    code = Result.ERROR_CAPACITY


_ERRORS = {error.code: error for error in (
    InvalidArgumentError, OutOfMemoryError, UnsupportedError, WaitTimeoutError, RankFailedError,
    AbortedError, MismatchError, CapacityError)}


def _load() -> ctypes.CDLL:
    path = os.environ.get("WEFT_LIBRARY") or \
        os.path.join(os.path.dirname(__file__), abi.LIBRARY)
    try:
        loaded = ctypes.CDLL(path)  # its functions run without the GIL
        version_of = loaded.weft_version
    except (OSError, AttributeError) as error:
        raise ImportError(f"weft cannot load its library: {error}. A wheel contains it, `make` "
                          "builds it, and WEFT_LIBRARY can name another one") from None
    version_of.restype = ctypes.c_uint32
    version = version_of()
    wanted = abi.VERSION_MAJOR * 10000 + abi.VERSION_MINOR * 100
    if not wanted <= version < wanted + 100:
        raise ImportError(
            f"{path} is weft {version // 10000}.{version // 100 % 100}.{version % 100}; this "
            f"package was made for {abi.VERSION_MAJOR}.{abi.VERSION_MINOR}")
    for name, (result, arguments) in abi.FUNCTIONS.items():
        function = getattr(loaded, name, None)
        if function is None:
            raise ImportError(f"{path} lacks {name}: it is older than this package "
                              f"({abi.VERSION_MAJOR}.{abi.VERSION_MINOR}.{abi.VERSION_PATCH})")
        function.restype = result
        function.argtypes = list(arguments.values())
        numbers = [(place, argument, ctype)
                   for place, (argument, ctype) in enumerate(arguments.items())
                   if ctype not in (ctypes.c_void_p, ctypes.c_char_p)]
        if numbers:
            setattr(loaded, name, _checked(function, numbers))
    return loaded


def _checked(function: Any, numbers: list[tuple[int, str, Any]]) -> Any:
    """The function, but its numbers are not cut. lib[name] is the one without checks."""
    bounds = [(place, *abi.bounds(ctype)) for place, _, ctype in numbers]

    def call(*arguments):
        for place, least, most in bounds:
            number = arguments[place]
            if type(number) is not int or not least <= number <= most:
                break
        else:
            return function(*arguments)
        arguments = list(arguments)
        for place, name, ctype in numbers:
            arguments[place] = abi.whole(name, arguments[place], ctype)
        return function(*arguments)

    return call


lib = _load()


def version() -> tuple[int, int, int]:
    """The library's version."""
    number = lib.weft_version()
    return number // 10000, number // 100 % 100, number % 100


def error_of(result: int, comm: int | None = None) -> Error:
    """The exception for a result of the calling thread's last call. comm: address, for the rank."""
    message = (lib.weft_last_error() or lib.weft_result_string(result)).decode(errors="replace")
    failed = ctypes.c_int32(-1)
    is_of_comm = comm and lib.weft_comm_status(comm, ctypes.byref(failed)) == result
    return _ERRORS.get(result, Error)(
        message, Result(result), failed.value if is_of_comm and failed.value >= 0 else None)


def check(result: int, comm: int | None = None) -> None:
    if result != 0:
        raise error_of(result, comm)


def query(kind: Any, function, *arguments) -> Any:
    """The struct that a function fills, which is its last argument."""
    told = kind()
    check(function(*arguments, ctypes.byref(told)))
    return told
