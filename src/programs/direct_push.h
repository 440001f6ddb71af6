/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_DIRECT_PUSH_H
#define WEFT_PROGRAMS_DIRECT_PUSH_H

#include "programs/direct.h"

enum weft_push_kind {
    WEFT_PUSH_A_ROW_EACH,
    WEFT_PUSH_ONE_ROW_TO_ALL /* the rows sent are all the same */
};

struct weft_direct_push_args {
    struct weft_direct direct;
    const char *in;
    char *out;
    enum weft_push_kind kind;
    uint64_t longest_row_bytes; /* of those sent */
    struct weft_exchanged_rows rows;
};

#endif
