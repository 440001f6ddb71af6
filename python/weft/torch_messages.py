# SPDX-License-Identifier: MIT
"""Messages between two ranks of a process group, by tags and from any rank, on machine cpu.

Each rank has a few slots in its heap for each other rank. Who sends fills them, one after the
other, and counts them up at the receiver (`arrived`); who receives takes what is in them and counts
up at the sender (`freed`). Both count up the `bell` of the rank that is to look. So a rank waits
for one word, whoever sends. Messages that nobody has asked for yet are kept.
"""
from __future__ import annotations

import ctypes
import threading
from collections import deque
from typing import Any, Callable

import torch

from .abi import RmaArgs
from .communicator import Communicator
from .library import Error, MismatchError, lib
from .torch_works import MessageWork

SLOTS = 8  # of each pair of ranks and direction
SLOT_BYTES, ALL_SLOTS_BYTES = 128 << 10, 2 << 20
HELP_S, IDLE_LOOKS = 0.005, 100  # how often the thread looks for what nobody waits for


class Header(ctypes.Structure):
    """What a slot begins with. The bytes behind it are as many as fit, or as the message still
    has."""

    _fields_ = [("tag", ctypes.c_int64), ("num_bytes", ctypes.c_int64)]


HEADER_BYTES = 64  # so that rows behind it are aligned


class Messages:
    """Sends and receives of a communicator, on machine cpu. Collective."""

    def __init__(self, comm: Communicator):
        num_ranks = comm.num_ranks
        slot_bytes = min(SLOT_BYTES, ALL_SLOTS_BYTES // (SLOTS * num_ranks) // 64 * 64)
        self._comm = comm
        slots = comm.heap_empty((num_ranks, SLOTS, slot_bytes), torch.uint8)
        self._words = comm.heap_empty((2 * num_ranks + 1,), torch.int64)
        self._words.zero_()
        comm.host_barrier()  # all words are set
        self._slot_bytes, self._slots, self._first_word = \
            slot_bytes, slots.data_ptr(), self._words.data_ptr()
        # Where slots of other ranks are mapped here; None: they are of another node.
        mapped = [comm.on_rank(slots, peer) for peer in range(num_ranks)]
        self._mapped = [None if there is None else there.data_ptr() for there in mapped]
        self._staging = comm.heap_empty(slots.shape, torch.uint8).data_ptr() \
            if None in self._mapped else 0
        self._bell = 2 * num_ranks
        self._num_sent, self._num_taken = [0] * num_ranks, [0] * num_ranks  # slots, by peer
        self._num_freed = [0] * num_ranks  # of those taken, that the peer knows of
        self._to_send: list[deque[MessageWork]] = [deque() for _ in range(num_ranks)]
        self._asked: list[MessageWork] = []  # receives that have no message yet
        self._kept: list[MessageWork] = []  # messages that no receive has asked for, by arrival
        self._arriving: list[MessageWork | None] = [None] * num_ranks
        self._error: BaseException | None = None
        lock = threading.RLock()
        self._change, self._help_wanted = threading.Condition(lock), threading.Condition(lock)
        self._is_driven = False  # by a thread, which waits for the bell
        self._is_idle = False  # the thread
        self._thread: threading.Thread | None = None  # for what nobody waits for
        self._is_closed = False

    # ------------------------------------------------------------ calls

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> MessageWork:
        """Of a dense tensor of any type."""
        work = MessageWork(self.drive, tensor, peer, tag, "send to")
        with self._change:
            self._to_send[peer].append(work)
            self._begin_work()
        return work

    def receive(self, tensor: torch.Tensor, peer: int | None, tag: int) -> MessageWork:
        """peer None: from any rank."""
        work = MessageWork(self.drive, tensor, peer, tag, "receive from")
        with self._change:
            kept = next((kept for kept in self._kept if _fits(work, kept)), None)
            if kept is None:
                self._asked.append(work)
            else:
                self._kept.remove(kept)
                self._give(work, kept)
            self._begin_work()
        return work

    def close(self) -> None:
        """Ends what has not been done."""
        with self._change:
            self._is_closed = True
            self._help_wanted.notify()
            self._change.notify_all()
        if self._thread is not None:
            if self._error is None:
                self._rma(lib.weft_rma_signal, self._bell, 1, rank=self._comm.rank)
            self._thread.join()

    # ------------------------------------------------------------ progress

    def _is_busy(self) -> bool:
        return bool(self._asked) or any(self._to_send) or any(
            work is not None and work.what != KEPT for work in self._arriving)

    def _progress(self) -> int:
        """Does what can be done now. Returns how often the bell has been rung for what was seen."""
        try:
            if self._error is not None:
                raise self._error
            words = self._words.tolist()
            num_ranks = self._comm.num_ranks
            for peer in range(num_ranks):
                while self._num_taken[peer] < words[peer]:
                    self._take(peer)
                while self._to_send[peer] and \
                        self._num_sent[peer] - words[num_ranks + peer] < SLOTS:
                    self._fill(peer)
            return sum(words[:2 * num_ranks])
        except Error as error:
            self._fail(error)
            return 0

    def _begin_work(self) -> None:
        """A call has come. What cannot be done now is for who waits for it, or for the thread."""
        self._progress()
        if self._thread is None and self._is_busy():
            self._thread = threading.Thread(target=self._help, name="weft-messages", daemon=True)
            self._thread.start()
        elif self._is_idle and self._is_busy():
            self._help_wanted.notify()

    def drive(self, is_enough: Callable[[], bool]) -> None:
        """Waits for the bell, unless another thread does, until it is enough."""
        with self._change:
            while not is_enough():
                if self._is_driven:
                    self._change.wait()
                    continue
                num_rings = self._progress()
                if is_enough():
                    break
                self._is_driven = True
                self._change.release()
                try:
                    self._rma(lib.weft_rma_wait_until, self._bell, num_rings + 1)
                except Error as error:
                    self._error = error  # which progress finds
                finally:
                    self._change.acquire()
                    self._is_driven = False
                self._progress()
                self._change.notify_all()

    def _help(self) -> None:
        """The thread. It looks now and then, so that calls need not wake it, until there has been
        nothing to do for a while."""
        num_idle = 0
        while not self._is_closed:
            with self._change:
                num_idle = 0 if self._is_busy() else num_idle + 1
                self._is_idle = num_idle > IDLE_LOOKS
                self._help_wanted.wait(None if self._is_idle else HELP_S)
                if self._is_idle:
                    num_idle, self._is_idle = 0, False
                    continue
                if self._is_driven or not self._is_busy():
                    continue
            self.drive(lambda: self._is_closed or not self._is_busy())

    def _fail(self, error: BaseException) -> None:
        """Ends all that is under way, naming the rank that it waits for."""
        self._error = error
        works = self._asked + [work for queue in self._to_send for work in queue] + [
            work for work in self._arriving if work is not None]
        for work in works:
            rank = getattr(error, "rank", None)
            work.finish(type(error)(f"{work}: {error}",
                                    getattr(error, "code", None),
                                    work.peer if rank is None else rank)
                        if isinstance(error, Error) else error)
        self._asked = []
        for queue in self._to_send:
            queue.clear()
        self._arriving = [None] * len(self._arriving)

    # ------------------------------------------------------------ slots

    def _rma(self, function: Any, word: int, value: int, **fields: int) -> None:
        args = RmaArgs(word=self._first_word + 8 * word, value=value, **fields)
        self._comm.enqueue(function, self._comm._native, args, None)

    def _count_up(self, word: int, num: int, peer: int) -> None:
        self._rma(lib.weft_rma_signal, word, num, rank=peer)
        self._rma(lib.weft_rma_signal, self._bell, num, rank=peer)

    def _fill(self, peer: int) -> None:
        """Sends the next part of the first message to a rank."""
        work = self._to_send[peer][0]
        rank, place = self._comm.rank, self._num_sent[peer] % SLOTS
        mapped = self._mapped[peer]
        offset = (rank * SLOTS + place) * self._slot_bytes  # in the heap of the peer
        slot = self._staging + (peer * SLOTS + place) * self._slot_bytes if mapped is None else \
            mapped + offset
        num_bytes = min(self._slot_bytes - HEADER_BYTES, work.num_bytes - work.num_done)
        header = Header.from_address(slot)
        header.tag, header.num_bytes = work.tag, work.num_bytes
        ctypes.memmove(slot + HEADER_BYTES, work.address + work.num_done, num_bytes)
        if mapped is None:
            self._rma(lib.weft_rma_put_signal, rank, 1, rank=peer, dst=self._slots + offset,
                      src=slot, bytes=HEADER_BYTES + num_bytes)
            self._rma(lib.weft_rma_signal, self._bell, 1, rank=peer)
        else:
            self._count_up(rank, 1, peer)
        self._num_sent[peer] += 1
        work.num_done += num_bytes
        if work.num_done == work.num_bytes:
            self._to_send[peer].popleft().finish()

    def _take(self, peer: int) -> None:
        """Takes what is in the next slot from a rank."""
        slot = self._slots + \
            (peer * SLOTS + self._num_taken[peer] % SLOTS) * self._slot_bytes
        work = self._arriving[peer]
        if work is None:
            header = Header.from_address(slot)
            work = self._arriving[peer] = self._begin(peer, header.tag, header.num_bytes)
        num_bytes = min(self._slot_bytes - HEADER_BYTES, work.num_bytes - work.num_done)
        ctypes.memmove(work.address + work.num_done, slot + HEADER_BYTES, num_bytes)
        work.num_done += num_bytes
        self._num_taken[peer] += 1
        num_free = self._num_taken[peer] - self._num_freed[peer]
        if num_free >= SLOTS // 2:
            self._count_up(self._comm.num_ranks + self._comm.rank, num_free, peer)
            self._num_freed[peer] += num_free
        if work.num_done == work.num_bytes:
            self._arriving[peer] = None
            work.finish()

    def _begin(self, peer: int, tag: int, num_bytes: int) -> MessageWork:
        """Where a message is to go: to the first receive that asks for such a one."""
        memory = torch.empty(num_bytes, dtype=torch.uint8)
        message = MessageWork(self.drive, memory, peer, tag, KEPT)
        for i, work in enumerate(self._asked):
            if _fits(work, message):
                del self._asked[i]
                work.peer = peer
                if work.num_bytes == num_bytes:
                    return work
                self._give(work, message)
                return message
        self._kept.append(message)
        return message

    def _give(self, work: MessageWork, kept: MessageWork) -> None:
        """What has come of a message, and will, is that of a receive."""
        work.peer = kept.peer
        if work.num_bytes != kept.num_bytes:
            work.finish(MismatchError(f"{work}: {kept.num_bytes} bytes were sent", rank=kept.peer))
            return
        ctypes.memmove(work.address, kept.address, kept.num_done)
        work.num_done = kept.num_done
        if self._arriving[kept.peer] is kept:
            self._arriving[kept.peer] = work
        else:
            work.finish()


KEPT = "message from"


def _fits(work: MessageWork, message: MessageWork) -> bool:
    return work.peer in (None, message.peer) and work.tag == message.tag
