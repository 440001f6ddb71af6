/* SPDX-License-Identifier: MIT */
/* remote_access: one access to the heap of a rank of another node, or a flush of all, by one warp. */
#include "programs/remote_access.h"

WEFT_PROGRAM(remote_access, warp, args)
{
    if (args->access.operation == WEFT_ACCESS_FLUSH)
        return weft_quiet(warp, &args->heaps);
    return weft_access_heap(warp, &args->heaps, &args->access);
}
