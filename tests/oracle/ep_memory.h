/* SPDX-License-Identifier: MIT */
/* What operations read and write: arrays in memory of the machine, each with a copy for the host,
 * which alone the tests fill and compare. So the same test runs where the host cannot access memory
 * of the machine. Functions return 0, or 1 when a check has failed. */
#pragma once

#include "oracle/ep_rank.h"

enum ep_place {
    EP_HEAP,  /* from the rank's arena, between guard bytes */
    EP_OWN,   /* memory of this rank alone, between guard bytes */
    EP_INPUT, /* the same without, so that a sanitizer sees who reads beyond it */
};

enum { EP_GUARD = 0xa5 }; /* what all bytes of an array are at first, and of the guards at last */

struct ep_array {
    void *data; /* of the machine: for operations, not for the host; NULL when bytes is 0 */
    void *host; /* the host's copy of data; NULL when bytes is 0 */
    uint64_t bytes;
    enum ep_place place;
    char *block, *host_block; /* data and what is around it, of both */
    uint64_t block_bytes;
};

/* Where array `which` of an operation of the round lies on this rank (spec.reach). */
enum ep_place ep_reach_place(const struct ep_rank *self, uint64_t round, int32_t which);

/* `data` is misalign_bytes (below 64) off a 64-byte boundary. */
int ep_array_alloc(struct ep_rank *self, struct ep_array *array, enum ep_place place,
                   uint64_t bytes, uint64_t misalign_bytes);
/* Without looking at it. An array of zeros is freed already. */
int ep_array_free(struct ep_rank *self, struct ep_array *array);
/* Frees it; fails if a guard byte changed. */
int ep_array_check_and_free(struct ep_rank *self, struct ep_array *array, const char *name);

/* Between data and host; the operations must have finished. */
int ep_array_push(struct ep_rank *self, const struct ep_array *array);
int ep_array_pull(struct ep_rank *self, struct ep_array *array);
/* Fails unless what was pulled from byte `begin` on is as it was after allocation. */
int ep_array_untouched(const struct ep_array *array, uint64_t begin, const char *name);

/* Copies of what this rank's tokens are in self->world, ids, weights and the table in place of ids,
 * NULL where there are no tokens. They live until the world is left. */
struct ep_inputs {
    const void *topk_idx;
    const float *topk_weights;
    const uint8_t *tokens_to_ranks;
    const int32_t *selections;
};
int ep_rank_inputs(struct ep_rank *self, struct ep_inputs *inputs);

/* Calls function(argument) after what is on the stream and before what comes next. Where such a
 * call cannot access memory of the machine, the host waits and then calls it itself. */
int ep_rank_call(struct ep_rank *self, void (*function)(void *argument), void *argument);
/* weft_memory_copy for functions called so. */
weft_result ep_rank_copy(struct ep_rank *self, void *dst, const void *src, size_t bytes);

/* Used by ep_rank.c. */
struct ep_memory *ep_memory_create(void);
/* Where allocating would wait for operations of other ranks, EP_OWN and EP_INPUT come from a block
 * of `bytes`. */
int ep_memory_reserve(struct ep_rank *self, uint64_t bytes);
/* From now on EP_OWN and EP_INPUT come from a block of so many bytes that is registered.
 * Collective; so is then ep_memory_destroy. */
int ep_memory_register(struct ep_rank *self, uint64_t bytes);
int ep_memory_forget_inputs(struct ep_rank *self);
int ep_memory_destroy(struct ep_rank *self);
