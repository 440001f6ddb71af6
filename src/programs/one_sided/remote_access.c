/* SPDX-License-Identifier: MIT */
/* remote_access: one access to the heap of a rank of another node, or by the own NIC, or a flush of
 * all, by one warp. */
#include "programs/one_sided/remote_access.h"

WP_PROGRAM(remote_access, warp, args)
{
    if (args->access.operation == WP_ACCESS_FLUSH)
        return wp_quiet(warp, &args->heaps);
    return wp_access_remote(warp, &args->heaps, &args->access);
}
