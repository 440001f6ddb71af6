/* SPDX-License-Identifier: MIT */
#include "workload/version.h"

#include "weft.h"

void version_text(char text[VERSION_CHARS])
{
    const uint32_t version = weft_version();
    snprintf(text, VERSION_CHARS, "%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
}

const char *version_commit(void)
{
    return *weft_commit() != '\0' ? weft_commit() : NULL;
}

void version_print(FILE *stream, struct argp_state *state)
{
    char version[VERSION_CHARS];
    (void)state;
    version_text(version);
    fprintf(stream, *weft_commit() ? "weft %s (commit %s)\n" : "weft %s%s\n", version,
            weft_commit());
}
