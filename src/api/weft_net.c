/* SPDX-License-Identifier: MIT */
#include "api/objects.h"
#include "api/structs.h"
#include "machine/host.h"

weft_result weft_net_query(const weft_comm *comm, weft_net_info *info)
{
    weft_net_info found = {.engine = ""};
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_net_info, info, "info"));
    if (comm != NULL)
        WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    const struct weft__machine *machine =
        comm != NULL ? weft__machine_of(comm) : &weft__host_machine;
    WEFT__TRY(machine->describe_network(comm, &found));
    WEFT__WRITE(weft_net_info, info, &found);
    return WEFT_OK;
}
