# SPDX-License-Identifier: MIT
"""What torch.distributed's backend "weft" returns: handles of operations that may still run."""
from __future__ import annotations

import functools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Callable

import torch
import torch.distributed as dist

from .library import Error, WaitTimeoutError
from .streams import Event, Stream

POLL_S = 0.0002
# Each waits for one future. More than one, because what follows a future may wait for another.
FUTURE_THREADS = 16


@functools.cache
def _future_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(FUTURE_THREADS, "weft-future")


def of_group(error: WaitTimeoutError) -> WaitTimeoutError:
    """With what PyTorch's users look for in the text: that it is a timeout, and whose."""
    return WaitTimeoutError(f"Timed out: {error}. That is the timeout of the process group",
                            error.code, error.rank)


def run_steps(steps: list[Callable[[], Any]]) -> None:
    if steps:
        with torch.no_grad():
            for step in steps:
                step()


class Work(dist._Work):
    """An operation that has finished; subclasses: one that may not have.

    result: the tensors that it writes, as get_future() tells them.
    """

    def __init__(self, result: list[Any]):
        super().__init__()
        self._result = result
        self._error: BaseException | None = None
        self._future: torch.futures.Future | None = None

    def _await(self, timeout_s: float) -> None:
        """Waits until it has finished, for timeout_s if that is not 0; its error is kept."""

    def _has_finished(self) -> bool:
        return True

    def _poll(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not self._has_finished():
            if time.monotonic() > deadline:
                raise WaitTimeoutError(f"Timed out: the operation has not finished within "
                                       f"{timeout_s} s. It goes on, for the timeout of its group")
            time.sleep(POLL_S)

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._await(timeout.total_seconds() if timeout else 0)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self._has_finished()

    def is_success(self) -> bool:
        return self._has_finished() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error if self._has_finished() else None

    def result(self) -> list[Any]:
        return self._result

    def get_future(self) -> torch.futures.Future:
        if self._future is None:
            self._future = torch.futures.Future()
            if self._has_finished():
                self._set_future()
            else:
                _future_threads().submit(self._set_future)
        return self._future

    def _set_future(self) -> None:
        try:
            self.wait()
        except Exception as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(self._result)


_finishing = threading.RLock()


class StreamWork(Work):
    """Operations on a stream of machine cpu, and what is left to do after them, which the first
    one does who asks whether they have finished. All arguments live until then."""

    def __init__(self, lane: Any, stream: Stream, result: list[Any],
                 after: list[Callable[[], Any]]):
        super().__init__(result)
        self._lane, self._after = lane, after
        self._event: Event | None = lane.events.pop() if lane.events else Event(lane.comm)
        self._event.record(stream)

    def _await(self, timeout_s: float) -> None:
        if timeout_s:
            self._poll(timeout_s)
        event = self._event
        if event is not None:
            event.synchronize()
            self._finish()

    def _has_finished(self) -> bool:
        event = self._event
        if event is None:
            return True
        if not event._native.lock.acquire(blocking=False):
            return False  # another thread waits for it
        try:
            has_passed = event.has_passed()
        finally:
            event._native.lock.release()
        if has_passed:
            self._finish()
        return has_passed

    def _finish(self) -> None:
        with _finishing:
            event, self._event = self._event, None
            if event is None:
                return
            try:
                self._lane.comm.check()
                run_steps(self._after)
            except WaitTimeoutError as error:
                self._error = of_group(error)
            except Error as error:
                self._error = error
            self._after = []
            if self._future is None:  # else another thread may wait for the event
                self._lane.events.append(event)


class CudaWork(Work):
    """Operations on a stream of CUDA's. They are waited for by the current stream, not by the
    host."""

    def __init__(self, stream: Any, result: list[Any]):
        super().__init__(result)
        self._stream = stream
        self._event = torch.cuda.Event()
        self._event.record(stream)

    def _await(self, timeout_s: float) -> None:
        torch.cuda.current_stream(self._stream.device).wait_event(self._event)

    def _has_finished(self) -> bool:
        return self._event.query()

    def get_future(self) -> torch.futures.Future:
        if self._future is None:
            self._future = torch.futures.Future(devices=[self._stream.device])
            with torch.cuda.stream(self._stream):  # what follows it waits for this stream
                self._future.set_result(self._result)
        return self._future


class MessageWork(Work):
    """A send or receive between two ranks.

    drive: waits for messages until what it is given says that it is enough.
    peer: the other rank; None: any, until its message comes.
    """

    def __init__(self, drive: Callable[[Callable[[], bool]], None], tensor: torch.Tensor,
                 peer: int | None, tag: int, what: str):
        super().__init__([tensor])
        self._drive = drive
        self.address, self.num_bytes = tensor.data_ptr(), tensor.nbytes
        self.peer, self.tag, self.what = peer, tag, what
        self.num_done = 0  # bytes
        self._is_finished = False

    def __str__(self) -> str:
        peer = "any rank" if self.peer is None else f"rank {self.peer}"
        return f"{self.what} {peer}, tag {self.tag}, {self.num_bytes} bytes"

    def finish(self, error: BaseException | None = None) -> None:
        self._error = error
        self._is_finished = True

    def _await(self, timeout_s: float) -> None:
        if timeout_s:
            self._poll(timeout_s)
        else:
            self._drive(self._has_finished)

    def _has_finished(self) -> bool:
        return self._is_finished

    def source_rank(self) -> int:
        return self.peer

    _source_rank = source_rank
