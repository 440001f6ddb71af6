/* SPDX-License-Identifier: MIT */
/* In place of the engine on UCX where its headers were not there at build time. */
#include "comm/host/error.h"
#include "net/engine.h"

static weft_result probe(void)
{
    return weft__error(WEFT_ERROR_UNSUPPORTED, "this build of weft is without UCX");
}

const struct weft__net_engine weft__net_ucx = {.name = "ucx", .probe = probe};
