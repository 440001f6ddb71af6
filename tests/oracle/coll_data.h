/* SPDX-License-Identifier: MIT */
/* The content of rows that collectives are given: a pure function of a key, the rank, and the
 * place. */
#pragma once

#include "oracle/coll_case.h"

/* Rows are made in pieces of so many elements. */
enum { COLL_DATA_PIECE = 1024 };

/* Elements of piece `piece` of a row; count is COLL_DATA_PIECE at most. */
void coll_data_fill(uint64_t key, enum coll_values values, int32_t rank, uint64_t piece,
                    weft_dtype dtype, void *out, uint64_t count);
