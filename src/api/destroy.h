/* SPDX-License-Identifier: MIT */
/*
 * How objects end: one rule for all. An object waits for its own operations that are still queued,
 * each of which has a deadline; then what belongs to it is destroyed, the newest first, and then
 * itself.
 */
#pragma once

#include "api/objects.h"

/* Always WEFT_OK. */
weft_result weft__destroy(enum weft__kind kind, void *object);

/* Enters a new object in *out, or destroys it. */
weft_result weft__give(enum weft__kind kind, void *object, const void *owner, void *out);

/* Collective over comm: the same on all ranks. */
weft_result weft__give_on_all(weft_comm *comm, enum weft__kind kind, void *object,
                              const void *owner, void *out);

/* The ends of the kinds with files of their own, once nothing belongs to the object any more. */
void weft__comm_end(weft_comm *comm);
void weft__arena_end(weft_arena *arena);
