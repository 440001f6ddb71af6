/* SPDX-License-Identifier: MIT */
#include "workload/version.h"

#include "weft.h"

void version_print(FILE *stream, struct argp_state *state)
{
    (void)state;
    const uint32_t version = weft_version();
    fprintf(stream, "weft %u.%u.%u\n", version / 10000, version / 100 % 100, version % 100);
    if (*weft_commit())
        fprintf(stream, "commit %s\n", weft_commit());
}
