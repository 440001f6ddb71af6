/* SPDX-License-Identifier: MIT */
/* Memory that users have registered: what other ranks reach where it is lies in windows. */
#pragma once

#include "memory/windows.h"

/* Semantics: weft.h. Arguments have been checked. */
weft_result weft__register(weft_comm *comm, void *ptr, uint64_t bytes, int32_t *is_direct);
weft_result weft__unregister(weft_comm *comm, void *ptr);

/* 1 if the bytes lie in the heap, or in registered memory that others reach: *place is then
 * theirs. */
int weft__registered_find(const weft_comm *comm, const void *ptr, uint64_t bytes, uint64_t *place);
/* Forgets all, without closing. */
void weft__registered_forget(weft_comm *comm);
