/* SPDX-License-Identifier: MIT */
#include "api/check.h"
#include "api/objects.h"
#include "machine/host.h"

weft_result weft_net_query(const weft_comm *comm, weft_net_info *info)
{
    weft_net_info found = {.engine = ""};
    WEFT__TRY(weft__check_not_null(info, "info"));
    if (comm != NULL)
        WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    const struct weft__machine *machine =
        comm != NULL ? weft__machine_of(comm) : &weft__host_machine;
    WEFT__TRY(machine->describe_network(comm, &found));
    *info = found;
    return WEFT_OK;
}
