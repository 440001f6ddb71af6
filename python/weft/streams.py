# SPDX-License-Identifier: MIT
"""Streams, events, and graphs: the order in which operations run."""
from __future__ import annotations

import ctypes
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from .library import check, lib
from .objects import Native, Object, call

if TYPE_CHECKING:
    from .communicator import Communicator


class Mark:
    """A place in a stream: what was enqueued before it."""

    __slots__ = ("stream", "number")

    def __init__(self, stream: Stream, number: int):
        self.stream = stream
        self.number = number

    def passed(self) -> None:
        """The stream has passed it, so what the operations before it used may go."""
        self.stream._let_go(self.number)


class Stream(Object):
    """An ordered queue on a communicator's machine. It may outlive the communicator.

    Arrays that operations use are kept until the stream is known to have passed them: by
    synchronize(), by an event, or by Handle.wait_counts().

    native_stream: an existing cudaStream_t, 0 for the legacy default stream, which is wrapped;
    without it the stream is a new one. What runs on a wrapped stream is not kept: PyTorch's
    allocator gives memory back in the order of streams. On machine cpu 0 is for operations that
    run in synchronize(), by its caller, who keeps what they use.
    """

    def __init__(self, comm: Communicator, native_stream: int | None = None):
        stream = ctypes.c_void_p()
        if native_stream is None:
            call(lib.weft_stream_create, comm._native.pointer(), ctypes.byref(stream),
                 using=(comm._native,))
        else:
            call(lib.weft_stream_wrap, comm._native.pointer(), native_stream, ctypes.byref(stream),
                 using=(comm._native,))
        self._native = Native("stream", stream.value)
        self.last_comm = weakref.ref(comm._native)  # whose failure its errors tell
        self._kept: deque[tuple[int, tuple[Any, ...]]] = deque()
        self._num_kept = 0
        self._keeps = native_stream is None

    def keep(self, *used: Any) -> None:
        """Keeps objects until the stream has passed what is enqueued now."""
        if self._keeps:
            self._kept.append((self._num_kept, used))
            self._num_kept += 1

    def mark(self) -> Mark:
        """Where the stream is now."""
        return Mark(self, self._num_kept)

    def synchronize(self) -> None:
        """Waits until all that was enqueued has finished; raises, once, its first error."""
        number = self._num_kept
        try:
            call(lib.weft_stream_synchronize, self._native.pointer(), using=(self._native,),
                 comm=self.last_comm())
        finally:
            self._let_go(number)

    def _let_go(self, number: int) -> None:
        """What the operations before that number used."""
        kept = self._kept
        while kept and kept[0][0] < number:
            for item in kept.popleft()[1]:
                if type(item) is Mark:
                    item.passed()

    def __del__(self):
        if hasattr(self, "_kept"):
            self._native.__del__()  # before what its operations use

    def wait_event(self, event: Event) -> None:
        """Later work waits for the event's latest record; one never recorded is done."""
        call(lib.weft_stream_wait_event, self._native.pointer(), event._native.pointer(),
             using=(self._native, event._native))
        self.keep(event._native, *([event._mark] if event._mark else []))

    def graph_begin(self) -> None:
        """What is enqueued from now on is recorded and does not run, until graph_end()."""
        call(lib.weft_graph_begin, self._native.pointer(), using=(self._native,))

    def graph_end(self) -> Graph:
        """The graph of what was recorded; it keeps the arrays that its operations use."""
        graph = ctypes.c_void_p()
        call(lib.weft_graph_end, self._native.pointer(), ctypes.byref(graph),
             using=(self._native,))
        return Graph(graph.value, tuple(self._kept))


class Event(Object):
    """A point in a stream, for streams of the communicator's machine."""

    def __init__(self, comm: Communicator):
        event = ctypes.c_void_p()
        call(lib.weft_event_create, comm._native.pointer(), ctypes.byref(event),
             using=(comm._native,))
        self._native = Native("event", event.value)
        self._mark: Mark | None = None

    def record(self, stream: Stream) -> None:
        """The event is the point in the stream that is reached now."""
        native, on = self._native, stream._native
        with native.lock, on.lock:  # in the order of locks
            check(lib.weft_event_record(native.pointer(), on.pointer()))
        self._mark = stream.mark()

    def synchronize(self) -> None:
        """Waits until the stream has passed the latest record."""
        mark = self._mark
        call(lib.weft_event_synchronize, self._native.pointer(), using=(self._native,))
        if mark:
            mark.passed()

    def has_passed(self) -> bool:
        """Whether the stream has passed the latest record; an event never recorded has not been.
        Does not wait."""
        elapsed = ctypes.c_double()  # from an event to itself: known once it has been passed
        address = self._native.pointer()
        if lib.weft_event_elapsed_us(address, address, ctypes.byref(elapsed)) != 0:
            return False
        if self._mark:
            self._mark.passed()
        return True

    def elapsed_us(self, end: Event) -> float:
        """Microseconds from this event's record to that of `end`; both must have been passed."""
        elapsed = ctypes.c_double()
        call(lib.weft_event_elapsed_us, self._native.pointer(), end._native.pointer(),
             ctypes.byref(elapsed), using=(self._native, end._native))
        return elapsed.value


class Graph(Object):
    """What was enqueued once, to be launched any number of times (machine cuda)."""

    def __init__(self, address: int, kept: tuple[Any, ...]):
        self._native = Native("graph", address)
        self._kept = kept

    def launch(self, stream: Stream) -> None:
        """Enqueues what was recorded; ranks launch their graphs in the same order."""
        call(lib.weft_graph_launch, self._native.pointer(), stream._native.pointer(),
             using=(self._native, stream._native))
        stream.keep(self)
