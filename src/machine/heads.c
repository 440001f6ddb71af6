/* SPDX-License-Identifier: MIT */
#include "topo/heads.h"
#include "comm/log.h"
#include "machine/host.h"
#include "topo/file.h"

weft_result weft__find_heads(weft_comm *comm, struct weft__heads *heads)
{
    const char *path = weft__topo_file_to_read();
    *heads = (struct weft__heads){0};
    if (comm->rank != 0 || path == NULL)
        return WEFT_OK;
    if (weft__topo_find_heads(path, comm->num_ranks, heads->ranks, &heads->num_heads) != WEFT_OK) {
        weft__log(WEFT__LOG_WARN, comm->rank, "the topology names no heads: %s",
                  weft__last_error());
        heads->num_heads = 0;
    }
    return WEFT_OK;
}
