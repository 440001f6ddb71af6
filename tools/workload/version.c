/* SPDX-License-Identifier: MIT */
#include "workload/version.h"

#include "weft.h"
#include "weft_commit.h"

void version_print(FILE *stream, struct argp_state *state)
{
    (void)state;
    const uint32_t version = weft_version();
    fprintf(stream, "weft %u.%u.%u", version / 10000, version / 100 % 100, version % 100);
    fprintf(stream, *WEFT_COMMIT ? " (commit %s)\n" : "%s\n", WEFT_COMMIT);
}
