/* SPDX-License-Identifier: MIT */
/* Remote memory access: a part of weft.h, which includes it and has the rules that hold for all of
 * it. */
#include "weft.h" /* before the guard: it includes its parts in their order */

#ifndef WEFT_RMA_H
#define WEFT_RMA_H

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Access to the heap of any rank, the own included, in which that rank takes no part. Not
 * collective: any rank at any time, on any stream. Semantics are those of NVSHMEM's *_on_stream
 * functions.
 *
 * - Addresses, also those of remote memory, are of the caller's own heap and mean the same offset
 *   in the heap of `rank`: in memory from weft_heap_alloc that no rank has freed yet, or in the
 *   block of an arena. The local side is in the heap, too. Words have 64 bits, are aligned to 8,
 *   and must be set to a value before anybody uses them (before a barrier, say).
 * - On the stream an operation has finished when its source may be overwritten and what it fetches
 *   is there. That says nothing about the target of a put, signal or add: see quiet.
 * - Puts, gets and adds are unordered among each other, also to the same rank. The add of a
 *   put_signal is visible only after its own bytes. Adds are atomic with the adds of all ranks, and
 *   they release: who sees a word by weft_rma_wait_until sees the bytes of the put_signal that
 *   added, and what its rank fenced before.
 * - The ranks of the own node are reached by loads and stores, others by the network. On machine
 *   cuda that takes room on the GPU for one block of one warp: a kernel of the caller that fills
 *   all SMs until something has come keeps it away.
 * - Errors: WEFT_ERROR_INVALID_ARGUMENT names a rank that does not exist, memory that is not in the
 *   heap, a word that is not aligned, or a field that the operation does not use and that is not
 *   zero; WEFT_ERROR_RANK_FAILED the rank that died, or has left.
 *
 * Example rma: each rank writes 4 words to the next one, and waits for those of the previous one.
 *
 *     int32_t rank = weft_comm_rank(comm), num_ranks = weft_comm_num_ranks(comm);
 *     weft_stream *stream;
 *     void *block; // the word to signal, then 4 words to send, then 4 to receive
 *     CHECK(weft_stream_create(comm, &stream));
 *     CHECK(weft_heap_alloc(comm, 9 * sizeof(uint64_t), &block));
 *     uint64_t *words = (uint64_t *)block;
 *     uint64_t values[9] = {0};
 *     for (int i = 1; i <= 4; i++)
 *         values[i] = (uint64_t)(10 * rank + i);
 *     CHECK(weft_memory_copy(comm, words, values, sizeof values));
 *     CHECK(weft_comm_host_barrier(comm)); // all words are set
 *
 *     weft_rma_args put = WEFT_INIT(weft_rma_args);
 *     put.rank = (rank + 1) % num_ranks;
 *     put.dst = words + 5;
 *     put.src = words + 1;
 *     put.bytes = 4 * sizeof(uint64_t);
 *     put.word = words;
 *     put.value = 1;
 *     CHECK(weft_rma_put_signal(comm, &put, stream));
 *     weft_rma_args wait = WEFT_INIT(weft_rma_args);
 *     wait.word = words;
 *     wait.value = 1;
 *     CHECK(weft_rma_wait_until(comm, &wait, stream));
 *     CHECK(weft_stream_synchronize(stream));
 *
 *     CHECK(weft_memory_copy(comm, values, words, sizeof values));
 *     EXPECT(values[8] == (uint64_t)(10 * ((rank + num_ranks - 1) % num_ranks) + 4));
 *     CHECK(weft_comm_host_barrier(comm)); // nobody writes to it any more
 *     CHECK(weft_heap_free(comm, block));
 *     CHECK(weft_stream_destroy(stream));
 */
typedef struct weft_rma_args {
    size_t size;
    void *dst;        /* put, put_signal: at `rank`; get: here */
    const void *src;  /* put, put_signal: here; get: at `rank` */
    uint64_t bytes;   /* of both */
    uint64_t *word;   /* put_signal, signal, add, fetch_add: at `rank`; wait_until: here */
    uint64_t value;   /* that is added, modulo 2^64 (-1 is UINT64_MAX); or that is waited for */
    uint64_t *before; /* fetch_add: here, 8 bytes for what the word was */
    int32_t rank;     /* whose memory is accessed; wait_until: 0 */
    int32_t reserved; /* 0 */
} weft_rma_args;

/* dst[bytes] at rank = src[bytes] here. */
WEFT_API weft_result weft_rma_put(weft_comm *comm, const weft_rma_args *args, weft_stream *stream);
/* dst[bytes] here = src[bytes] at rank. */
WEFT_API weft_result weft_rma_get(weft_comm *comm, const weft_rma_args *args, weft_stream *stream);
/* A put, and then *word += value at rank; the word is not part of dst. */
WEFT_API weft_result weft_rma_put_signal(weft_comm *comm, const weft_rma_args *args,
                                         weft_stream *stream);
/* *word += value at rank: a put_signal of no bytes. */
WEFT_API weft_result weft_rma_signal(weft_comm *comm, const weft_rma_args *args,
                                     weft_stream *stream);
/* The same, of any word. */
WEFT_API weft_result weft_rma_add(weft_comm *comm, const weft_rma_args *args, weft_stream *stream);
/* The same, and *before gets the value before the addition. */
WEFT_API weft_result weft_rma_fetch_add(weft_comm *comm, const weft_rma_args *args,
                                        weft_stream *stream);
/* Waits until this rank's *word, which changes by the operations above or is an expert's word of
 * weft_ll_dispatch, is `value` or more. Later operations of the stream see all that the adds
 * released. WEFT_ERROR_TIMEOUT names the word and its value, but no rank, since any may add to it;
 * if a rank dies, WEFT_ERROR_RANK_FAILED names it. */
WEFT_API weft_result weft_rma_wait_until(weft_comm *comm, const weft_rma_args *args,
                                         weft_stream *stream);
/* Puts, signals and adds of this rank that follow it on the stream are visible at each rank only
 * after those that precede it. */
WEFT_API weft_result weft_rma_fence(weft_comm *comm, weft_stream *stream);
/* Finishes when all that this rank did before it, on the stream, is visible at its targets, so that
 * it may tell anybody. */
WEFT_API weft_result weft_rma_quiet(weft_comm *comm, weft_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
