/* SPDX-License-Identifier: MIT */
#include "oracle/traces.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness/cmocka.h"

enum { SKIPPED = 77, PATH_BYTES = 4096 };

static const char *const names[NUM_TRACES] = {
    "dsv2lite-esft-intent.trace", "dsv2lite-esft-law.trace", "dsv2lite-esft-translation.trace"};

static void find_path(int which, char *path)
{
    const char *folder = getenv("WEFT_TRACE_DIR");
    snprintf(path, PATH_BYTES, "%s/%s", folder != NULL ? folder : WEFT_TRACE_DIR_DEFAULT,
             names[which]);
}

struct trace *traces_open(int which)
{
    char path[PATH_BYTES], error[TRACE_ERROR_BYTES];
    find_path(which, path);
    struct trace *trace = trace_open(path, error);
    if (trace == NULL)
        fail_msg("%s", error);
    return trace;
}

int traces_main(void)
{
    char path[PATH_BYTES];
    for (int which = 0; which < NUM_TRACES; which++) {
        find_path(which, path);
        if (access(path, R_OK) != 0) {
            printf("skipped: there is no %s (set WEFT_TRACE_DIR)\n", path);
            return SKIPPED;
        }
    }
    return tests_run(NULL, NULL);
}
