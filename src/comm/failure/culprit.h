/* SPDX-License-Identifier: MIT */
/* Who is to blame for a wait that failed: the rank that was awaited may only have waited for others
 * itself. */
#pragma once

#include "comm/comm.h"

enum { WEFT__CULPRIT_STORY_BYTES = 192 };

struct weft__culprit {
    int32_t rank;
    enum {
        WEFT__CULPRIT_SILENT,        /* it does not answer: stopped, or cut off */
        WEFT__CULPRIT_NOT_WAITING,   /* it answers, and is held up by no rank */
        WEFT__CULPRIT_AT_OWN_WORK,   /* it waits for work of its own, beside its launch */
        WEFT__CULPRIT_LEFT,          /* it has destroyed its communicator, with no wait failed */
        WEFT__CULPRIT_IN_CIRCLE,     /* it waits in a circle with all others: the odd one, or any */
        WEFT__CULPRIT_IN_OTHER_CALL, /* as in a circle, but it has not made this rank's call */
        WEFT__CULPRIT_UNKNOWN        /* no rank could be asked: the awaited rank */
    } state;
    int32_t other, call; /* WEFT__CULPRIT_IN_OTHER_CALL: a rank, and the call that it waits in */
    char story[WEFT__CULPRIT_STORY_BYTES]; /* tells how the awaited rank depends on it */
};

/* Follows the waits from `direct`, this rank's own that has failed, to their end, and makes it this
 * rank's answer to others. From any thread; takes up to half a second, less than the deadline. */
void weft__comm_find_culprit(weft_comm *comm, const struct weft__wait *direct,
                             struct weft__culprit *culprit);
