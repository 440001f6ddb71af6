/* SPDX-License-Identifier: MIT */
#include "meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "workload/options.h"

enum { MAX_PORT = 65535 };

/* HOST of HOST:PORT, of which `colon` is the last; an IPv6 address, and nothing else, is in
 * brackets. */
static void read_host(struct argp_state *state, const char *rendezvous, const char *colon,
                      char host[MEETING_HOST_BYTES])
{
    const size_t bytes = colon ? (size_t)(colon - rendezvous) : 0;
    const int is_bracketed = bytes > 2 && rendezvous[0] == '[' && colon[-1] == ']';
    const int num_brackets = is_bracketed ? 1 : 0;
    snprintf(host, MEETING_HOST_BYTES, "%.*s", (int)bytes - 2 * num_brackets,
             rendezvous + num_brackets);
    if (bytes == 0 || bytes >= MEETING_HOST_BYTES || strpbrk(host, "[]") ||
        is_bracketed != (strchr(host, ':') != NULL))
        argp_error(state, "--rendezvous %s: must be HOST:PORT, or [IPv6 address]:PORT", rendezvous);
}

/* With a secret, nothing is open to whoever can reach the port. */
void meeting_read(struct argp_state *state, const char *rendezvous, struct meeting *meeting)
{
    const char *colon = strrchr(rendezvous, ':'), *secret = getenv("WEFT_SECRET");
    read_host(state, rendezvous, colon, meeting->host);
    meeting->port = (int32_t)option_integer(state, "--rendezvous, port", colon + 1, 1, MAX_PORT);
    if (!secret || !*secret)
        argp_error(state,
                   "--rendezvous needs a secret that only the hosts of the job know: set "
                   "WEFT_SECRET on all of them to the same 32 hexadecimal digits, as `od -An "
                   "-N16 -tx8 /dev/urandom | tr -d \" \"' prints them");
    if (weft_unique_id_at(meeting->host, meeting->port, secret, &meeting->id) != WEFT_OK)
        argp_error(state, "--rendezvous and WEFT_SECRET: %s", weft_last_error());
}
