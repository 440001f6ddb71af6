/* SPDX-License-Identifier: MIT */
/* What the reductions of weft.h give, element by element, by plain arithmetic. */
#ifndef TESTS_COLL_ORACLE_H
#define TESTS_COLL_ORACLE_H

#include <stdint.h>

#include "weft.h"

/* out[count] = rows[0][count] op rows[1][count] op ...; all of dtype, at any address. num_rows is 1 or
 * more. */
void coll_oracle_reduce(weft_dtype dtype, weft_reduce_op op, int32_t num_rows,
                        const void *const *rows, uint64_t count, void *out);

#endif
