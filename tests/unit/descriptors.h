/* SPDX-License-Identifier: MIT */
/* How many descriptors a rank's process may have. The ranks' processes are older than the test that
 * they run, so a rank has to say it. */
#pragma once

#include <sys/resource.h>

#include "harness/ranks.h"

/* 0 with what was allowed before in *before, for the end; -1 where that many are not allowed. */
static inline int limit_descriptors(rlim_t num_descriptors, struct rlimit *before)
{
    if (getrlimit(RLIMIT_NOFILE, before) != 0)
        return -1;
    const struct rlimit limit = {num_descriptors, before->rlim_max};
    return setrlimit(RLIMIT_NOFILE, &limit);
}
