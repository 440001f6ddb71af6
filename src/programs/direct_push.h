/* SPDX-License-Identifier: MIT */
#ifndef WEFT_PROGRAMS_DIRECT_PUSH_H
#define WEFT_PROGRAMS_DIRECT_PUSH_H

#include "programs/direct.h"

/* Of this rank's input. */
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
    enum weft_pushed_rows rows;
    uint64_t longest_row_bytes; /* of sent */
    struct weft_pushed_row sent[WEFT_COLL_MAX_RANKS];
    /* What each rank shall write to this one, and where. */
    struct weft_private_message received[WEFT_COLL_MAX_RANKS];
};

#endif
