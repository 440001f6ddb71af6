/* SPDX-License-Identifier: MIT */
/* The names of what weft.h numbers; "?" for other numbers, as a peer's message might hold. */
#ifndef WEFT_OPS_NAMES_H
#define WEFT_OPS_NAMES_H

#include <stdint.h>

const char *weft__collective_name(uint64_t collective);
const char *weft__dtype_name(uint64_t dtype);
const char *weft__reduce_op_name(uint64_t op);

#endif
