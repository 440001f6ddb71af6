/* SPDX-License-Identifier: MIT */
/* In place of machine/cuda, where that is not built. */
#include "machine/host.h"

const struct weft__machine *weft__cuda_machine(void)
{
    weft__error(WEFT_ERROR_UNSUPPORTED, "this weft was built without CUDA");
    return NULL;
}

int32_t weft__cuda_build_version(void)
{
    return 0;
}
