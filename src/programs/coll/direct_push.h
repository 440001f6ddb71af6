/* SPDX-License-Identifier: MIT */
#pragma once

#include "programs/coll/direct.h"

enum wp_push_kind {
    WP_PUSH_A_ROW_EACH,
    WP_PUSH_ONE_ROW_TO_ALL, /* the rows sent are all the same */
    WP_PUSH_ONE_ROW_TO_ROOT /* and go nowhere else */
};

struct wp_direct_push_args {
    struct wp_direct direct;
    const char *in;
    char *out;
    enum wp_push_kind kind;
    int32_t root;               /* of WP_PUSH_ONE_ROW_TO_ROOT */
    uint64_t longest_row_bytes; /* of those sent */
    struct wp_exchanged_rows rows;
};
