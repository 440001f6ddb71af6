/* SPDX-License-Identifier: MIT */
/* What the static libraries of Debian call and glibc 2.28 does not have. */
#include <stdlib.h>
#include <sys/random.h>

/* Since glibc 2.36; expat seeds its hashes by it. */
__attribute__((visibility("hidden"))) void arc4random_buf(void *bytes, size_t num_bytes)
{
    if (getrandom(bytes, num_bytes, 0) != (ssize_t)num_bytes)
        abort();
}
