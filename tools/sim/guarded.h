/* SPDX-License-Identifier: MIT */
/* Memory of one run with guard bytes around every block. It outlives the ranks, so that a rank that
 * was killed leaks nothing and its guards can be checked too. */
#pragma once

#include <stddef.h>

enum { GUARD_BYTES = 64 };

struct guarded_block;

struct guarded {
    struct guarded_block *blocks; /* the latest first */
};

/* Zeroed, and aligned to 16 bytes; NULL without memory. */
void *guarded_alloc(struct guarded *memory, size_t num_bytes);

/* Puts guards around memory that lies elsewhere: `outer` has num_bytes + 2 * GUARD_BYTES. Returns
 * where the inner bytes begin. */
void *guarded_lay(void *outer, size_t num_bytes);
/* 1 if the guards around `inner` are as they were laid. */
int guarded_is_intact(const void *inner, size_t num_bytes);

/* Frees all; 1 if all guards were as laid. */
int guarded_free_all(struct guarded *memory);
