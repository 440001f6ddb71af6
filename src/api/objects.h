/* SPDX-License-Identifier: MIT */
/*
 * The objects of this process that calls may be given, so that one that does not exist, or does no
 * longer, is an error and not a crash. Each may belong to another one, and is destroyed with it.
 */
#pragma once

#include "weft.h"

enum weft__kind {
    WEFT__KIND_COMM = 1,
    WEFT__KIND_MEMORY, /* from weft_memory_alloc */
    WEFT__KIND_ARENA,
    WEFT__KIND_COLL,
    WEFT__KIND_CAPTURE,
    WEFT__KIND_EP,
    WEFT__KIND_HANDLE,
    WEFT__KIND_LL,
    WEFT__KIND_STREAM, /* this and the following belong to nothing */
    WEFT__KIND_EVENT,
    WEFT__KIND_GRAPH,
    WEFT__NUM_KINDS
};

/* Enters a new object, which belongs to `owner` if that is not NULL. On failure it is the
 * caller's. */
weft_result weft__object_add(enum weft__kind kind, const void *object, const void *owner);
/* Before the object is destroyed. */
void weft__object_remove(enum weft__kind kind, const void *object);

/* A few ns, without a lock, if it exists. */
int weft__object_exists(enum weft__kind kind, const void *object);
/* INVALID_ARGUMENT naming `argument` if it does not exist. */
weft_result weft__object_check(enum weft__kind kind, const void *object, const char *argument);
/* Checks the arguments "comm" and "stream" of an operation. */
weft_result weft__operands_check(const weft_comm *comm, const weft_stream *stream);

struct weft__object {
    enum weft__kind kind;
    void *ptr; /* NULL: none */
};
/* The last that was entered of those that belong to `owner`. */
struct weft__object weft__object_of(const void *owner);
/* The owner of an object that exists. */
const void *weft__object_owner(enum weft__kind kind, const void *object);
