# SPDX-License-Identifier: MIT
"""How objects of libweft live in Python.

Garbage collectors know no order, and libweft wants one, of which these rules make sure:

- A Native owns one C object. It holds the Native that its object belongs to, and nothing holds a
  Native that it could be in a cycle with. So what belongs to another object ends before it.
- What occupies the heap (weft_ep, weft_coll, ...) must end in the same order on all ranks. So it
  ends by destroy(), or with its communicator, but not when it is collected.
- A communicator ends by destroy(), or when nothing refers to it or to its memory any more, or when
  the interpreter ends. Arrays of its heap keep it: destroy() then takes effect with the last one.
- An object is in one call at a time: each has a lock.
- After a fork the child leaves its parent's objects alone.
"""
from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import weakref
from typing import Any

from .library import Error, InvalidArgumentError, check, error_of, lib

_num_forks = 0
_has_exited = False
_array_counts = threading.RLock()
_era: Any = object()  # another one after each end of an object


def _begin_era() -> None:
    global _era
    _era = object()


def _count_fork() -> None:
    global _num_forks
    _num_forks += 1
    _begin_era()


os.register_at_fork(after_in_child=_count_fork)


class Uncopied:
    """Base of objects that copy and pickle refuse."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} of weft can be neither copied nor pickled: it "
                        "stands for something that this process has once")


class Native(Uncopied):
    """A C object: its address, until it ends."""

    __slots__ = ("address", "kind", "owner", "ends_when_dropped", "lock", "num_arrays",
                 "ends_with_arrays", "num_forks", "_lived_in", "__weakref__")
    without_owner: weakref.WeakSet[Native] = weakref.WeakSet()

    def __init__(self, kind: str, address: int, owner: Native | None = None, *,
                 ends_when_dropped: bool = True):
        self.kind = kind  # weft_<kind>_destroy ends it
        self.address: int | None = address
        self.owner = owner
        self.ends_when_dropped = ends_when_dropped
        self.lock = threading.RLock()
        self.num_arrays = 0  # of its memory
        self.ends_with_arrays = False
        self.num_forks = _num_forks
        self._lived_in: Any = None  # the era in which it and its owners were seen alive
        if owner is None:
            Native.without_owner.add(self)

    def has_ended(self) -> bool:
        native: Native | None = self
        while native is not None:
            if native.address is None or native.ends_with_arrays or \
                    native.num_forks != _num_forks:
                return True
            native = native.owner
        return False

    def pointer(self) -> int:
        """The address, for a call. While nothing has ended nobody asks the owners again."""
        era = _era
        if self._lived_in is era:
            return self.address
        if not self.has_ended():
            self._lived_in = era
            return self.address
        if self.num_forks != _num_forks:
            raise InvalidArgumentError(f"{self.kind} was made before this process was forked")
        raise InvalidArgumentError(f"{self.kind} has been destroyed")

    def end(self) -> None:
        """Ends it now, or with the last array of its memory."""
        with self.lock:
            if self.has_ended() or _has_exited:
                return
            if self.num_arrays > 0:
                self.ends_with_arrays = True
                _begin_era()
                return
            address, self.address = self.address, None
            _begin_era()
        with self.root().lock:
            check(getattr(lib, f"weft_{self.kind}_destroy")(address))

    def root(self) -> Native:
        """The communicator, or itself if it belongs to none."""
        return self.owner.root() if self.owner else self

    def add_array(self) -> None:
        with _array_counts:
            self.num_arrays += 1

    def remove_array(self) -> None:
        with _array_counts:
            self.num_arrays -= 1
            if self.num_arrays or not self.ends_with_arrays or self.num_forks != _num_forks:
                return
            self.ends_with_arrays = False
        self.end()

    def __del__(self):
        if getattr(self, "ends_when_dropped", False):  # else __init__ did not run
            try:
                self.end()
            except Error:
                pass  # nobody to tell


@atexit.register
def _end_all() -> None:
    """A script that ends well says goodbye to the other ranks, after what it has queued. One that
    ends by an exception aborts its communicators: nobody waits for it, nor it for others."""
    global _has_exited
    has_failed = getattr(sys, "last_value", None) or getattr(sys, "last_exc", None)
    for native in sorted(Native.without_owner, key=lambda native: native.kind != "comm"):
        if has_failed and native.kind == "comm" and not native.has_ended():
            lib.weft_comm_abort(native.address)
        native.num_arrays = 0  # nobody reads them any more
        native.ends_with_arrays = False
        try:
            native.end()
        except Error:
            pass
    _has_exited = True
    if not has_failed:
        _let_others_leave()


served_ids: list[ctypes.Structure] = []  # of rendezvous in this process
LEAVE_LIMIT_S = 30


def _let_others_leave() -> None:
    """Without their rendezvous ranks have no failure detector, so the process that serves it is the
    last one, within bounds."""
    deadline = time.monotonic() + LEAVE_LIMIT_S
    for served in served_ids:
        while lib.weft_rendezvous_num_ranks(ctypes.byref(served)) > 0 and \
                time.monotonic() < deadline:
            time.sleep(0.005)


class Object(Uncopied):
    """Base of what the user holds."""

    _native: Native

    def __repr__(self) -> str:
        native = getattr(self, "_native", None)  # none while it is made
        ended = "" if native is not None and not native.has_ended() else ", destroyed"
        return f"<weft.{type(self).__name__} {self._about()}".rstrip() + f"{ended}>"

    def _about(self) -> str:
        """Text for repr() that tells this object from others of its class."""
        return ""

    def destroy(self) -> None:
        """Ends the object, after its operations that are still queued. May be called again."""
        self._native.end()

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self.destroy()


def call(function, *arguments, using: tuple[Native, ...], comm: Native | None = None) -> None:
    """Calls a function of the library with the objects that it uses locked, always in the same
    order; raises its error."""
    if len(using) > 1:
        using = sorted(using, key=_order)
    for native in using:
        native.lock.acquire()
    try:
        result = function(*arguments)
        if result:
            raise error_of(result, comm.address if comm else None)
    finally:
        for native in using:
            native.lock.release()


def _order(native: Native) -> tuple[bool, int]:
    """Of locks: streams are last."""
    return native.kind == "stream", id(native)
