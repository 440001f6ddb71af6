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
        WEFT__CULPRIT_LEFT,          /* it has destroyed its communicator, with no wait failed */
        WEFT__CULPRIT_IN_CIRCLE,     /* it waits in vain as all others do: the odd one, or any */
        WEFT__CULPRIT_IN_OTHER_CALL, /* the same, and it has not made the call of this rank */
        WEFT__CULPRIT_UNKNOWN        /* nobody could be asked: the rank that was waited for */
    } state;
    int32_t other,
        call; /* a rank, and enum weft__call, of WEFT__CULPRIT_IN_OTHER_CALL: what it waits in */
    char story[WEFT__CULPRIT_STORY_BYTES]; /* of how the awaited rank hangs together with it */
};

/* Follows the waits from `direct`, this rank's own that has failed, to their end, and makes it this
 * rank's answer to others. From any thread; takes up to half a second, less than the deadline. */
void weft__comm_find_culprit(weft_comm *comm, const struct weft__wait *direct,
                             struct weft__culprit *culprit);
