/* SPDX-License-Identifier: MIT */
#include "comm/comm.h"

#include <stdlib.h>

#include "api/destroy.h"
#include "api/log_job.h"
#include "api/new_comm.h"
#include "api/overlap.h"
#include "api/structs.h"
#include "coll/comm_barrier.h"
#include "comm/host/thread.h"
#include "comm/rendezvous/bootstrap.h"
#include "machine/host.h"
#include "memory/registered.h"

weft_result weft_unique_id_create(weft_unique_id *id)
{
    WEFT__TRY(weft__check_not_null(id, "id"));
    return weft__unique_id_create(id);
}

weft_result weft__read_comm_config(const weft_comm_config *given, weft_comm_config *config)
{
    WEFT__TRY(WEFT__READ_OPTIONAL(weft_comm_config, config, given, "config"));
    WEFT__TRY(weft__check_range(config->num_streams, 0, WEFT_MAX_STREAMS, "num_streams"));
    return weft__check_enum(WEFT__ENUM_MACHINE, (int32_t)config->machine, WEFT_MACHINE_AUTO,
                            WEFT_MACHINE_CUDA, "machine");
}

void weft__comm_end(weft_comm *comm)
{
    weft__barrier_destroy(comm);
    weft__registered_forget(comm);
    weft__windows_destroy(comm);
    free(comm->parent_ranks);
    weft__comm_destroy(comm);
}

weft_result weft__finish_comm(weft_comm *created, weft_comm **comm)
{
    weft_result result = weft__barrier_create(created);
    if (result == WEFT_OK)
        return weft__give_on_all(created, WEFT__KIND_COMM, created, NULL, comm);
    weft__comm_end(created);
    return result;
}

weft_result weft__begin_job(weft_comm *created, weft_comm **comm)
{
    WEFT__TRY(weft__finish_comm(created, comm));
    weft__log_job(*comm);
    return WEFT_OK;
}

weft_result weft_comm_create(const weft_unique_id *id, int32_t rank, int32_t num_ranks,
                             const weft_comm_config *user_config, weft_comm **comm)
{
    weft_comm_config config;
    const struct weft__machine *machine;
    weft_comm *created;
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__check_not_null(id, "id"));
    WEFT__TRY(weft__check_not_null(comm, "comm"));
    WEFT__TRY(weft__check_range(num_ranks, 1, WEFT__MAX_RANKS, "num_ranks"));
    WEFT__TRY(weft__check_range(rank, 0, num_ranks - 1, "rank"));
    WEFT__TRY(weft__read_comm_config(user_config, &config));
    WEFT__TRY(weft__machine_choose(config.machine, &machine));
    WEFT__TRY(weft__comm_create(id, rank, num_ranks, &config, &machine->hooks, &created));
    return weft__begin_job(created, comm);
}

weft_result weft_comm_create_from_env(const weft_comm_config *user_config, weft_comm **comm)
{
    weft_comm_config config;
    const struct weft__machine *machine;
    weft_comm *created;
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__check_not_null(comm, "comm"));
    WEFT__TRY(weft__read_comm_config(user_config, &config));
    WEFT__TRY(weft__machine_choose(config.machine, &machine));
    WEFT__TRY(weft__comm_create_from_env(&config, &machine->hooks, &created));
    return weft__begin_job(created, comm);
}

weft_result weft_comm_destroy(weft_comm *comm)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    return weft__destroy(WEFT__KIND_COMM, comm);
}

weft_result weft_comm_abort(weft_comm *comm)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    weft__comm_abort(comm);
    return WEFT_OK;
}

weft_result weft_comm_status(weft_comm *comm, int32_t *failed_rank)
{
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    weft_result result = weft__machine_check(comm);
    if (failed_rank != NULL)
        *failed_rank = result != WEFT_OK ? comm->status.failed_rank : -1;
    return result;
}

weft_result weft_team_query(const weft_comm *comm, weft_team team, weft_team_info *info)
{
    weft_team_info found;
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_team_info, info, "info"));
    WEFT__TRY(
        weft__check_enum(WEFT__ENUM_TEAM, (int32_t)team, WEFT_TEAM_WORLD, WEFT_TEAM_RAIL, "team"));
    weft__topology_team(&comm->topology, comm->rank, team, &found);
    WEFT__WRITE(weft_team_info, info, &found);
    return WEFT_OK;
}

int32_t weft_team_world_rank(const weft_comm *comm, weft_team team, int32_t rank_idx)
{
    if (!weft__object_exists(WEFT__KIND_COMM, comm) || team > WEFT_TEAM_RAIL)
        return -1;
    return weft__topology_world_rank(&comm->topology, comm->rank, team, rank_idx);
}

weft_machine weft_comm_machine(const weft_comm *comm)
{
    return weft__object_exists(WEFT__KIND_COMM, comm) ? weft__machine_of(comm)->kind
                                                      : WEFT_MACHINE_AUTO;
}

int32_t weft_comm_device(const weft_comm *comm)
{
    return weft__object_exists(WEFT__KIND_COMM, comm) ? comm->hooks->device_of(comm) : -1;
}

int32_t weft_comm_rank(const weft_comm *comm)
{
    return weft__object_exists(WEFT__KIND_COMM, comm) ? comm->rank : -1;
}

int32_t weft_comm_num_ranks(const weft_comm *comm)
{
    return weft__object_exists(WEFT__KIND_COMM, comm) ? comm->num_ranks : -1;
}

int32_t weft_comm_node(const weft_comm *comm, int32_t rank)
{
    if (!weft__object_exists(WEFT__KIND_COMM, comm) || rank < 0 || rank >= comm->num_ranks)
        return -1;
    return comm->topology.node_of_rank[rank];
}

weft_result weft_comm_host_barrier(weft_comm *comm)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    weft__comm_enter(comm, WEFT__CALL_HOST_BARRIER);
    return weft__comm_all_gather(comm, NULL, 0, NULL);
}

weft_result weft_comm_host_all_gather(weft_comm *comm, const void *send, uint64_t bytes, void *recv)
{
    WEFT__TRY(weft__check_may_wait(__func__));
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_array(send, (int64_t)bytes, "send"));
    WEFT__TRY(weft__check_array(recv, (int64_t)bytes, "recv"));
    if (bytes > WEFT__MAX_BLOB_BYTES)
        return weft__invalid("bytes is %llu, allowed are 0..%d", (unsigned long long)bytes,
                             WEFT__MAX_BLOB_BYTES);
    const struct weft__extent extents[] = {
        weft__extent_of("recv", WEFT__EXTENT_WRITTEN, recv, (uint64_t)comm->num_ranks, bytes),
        weft__extent_of("send", WEFT__EXTENT_READ, send, 1, bytes)};
    if ((const char *)send != (const char *)recv + (uint64_t)comm->rank * bytes)
        WEFT__TRY(weft__check_overlaps(extents, 2));
    weft__comm_enter(comm, WEFT__CALL_HOST_ALL_GATHER);
    return weft__comm_all_gather(comm, send, bytes, recv);
}
