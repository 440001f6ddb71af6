/* SPDX-License-Identifier: MIT */
/* Where the ranks of a job on several hosts meet, as --rendezvous and WEFT_SECRET say. */
#pragma once

#include <argp.h>
#include <stdint.h>

#include "weft.h"

enum { MEETING_HOST_BYTES = 256 };

struct meeting {
    char host[MEETING_HOST_BYTES]; /* of HOST:PORT, without brackets */
    int32_t port;
    weft_unique_id id;
};

/* Ends the process with a message if `rendezvous`, HOST:PORT, or the secret is wrong. */
void meeting_read(struct argp_state *state, const char *rendezvous, struct meeting *meeting);
