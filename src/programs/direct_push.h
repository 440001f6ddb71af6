/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_DIRECT_PUSH_H
#define WEFT_PROGRAMS_DIRECT_PUSH_H

#include "programs/direct.h"

/* Of this rank's input or output. */
struct weft_pushed_row {
    uint64_t offset;
    uint64_t bytes;
};

enum weft_pushed_rows {
    WEFT_PUSH_A_ROW_EACH,
    WEFT_PUSH_ONE_ROW_TO_ALL /* sent[] are all the same */
};

struct weft_direct_push_args {
    struct weft_direct direct;
    const char *in;
    char *out;
    enum weft_pushed_rows rows;
    uint64_t longest_row_bytes; /* of sent */
    struct weft_pushed_row sent[WEFT_COLL_MAX_RANKS];
    struct weft_pushed_row received[WEFT_COLL_MAX_RANKS]; /* in this rank's output */
};

#endif
