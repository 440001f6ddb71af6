/* SPDX-License-Identifier: MIT */
#include "comm/rendezvous/rendezvous.h"

#include "api/objects.h"
#include "api/structs.h"
#include "comm/comm.h"
#include "comm/rendezvous/bootstrap.h"

weft_result weft_unique_id_at(const char *address, int32_t port, const char *secret,
                              weft_unique_id *id)
{
    struct weft__meeting_point point;
    WEFT__TRY(weft__check_not_null(address, "address"));
    WEFT__TRY(weft__check_range(port, 1, UINT16_MAX, "port"));
    WEFT__TRY(weft__check_not_null(secret, "secret"));
    WEFT__TRY(weft__check_not_null(id, "id"));
    WEFT__TRY(weft__meeting_point_at(&point, address, port, secret));
    weft__meeting_point_to_id(&point, id);
    return WEFT_OK;
}

weft_result weft_comm_unique_id(const weft_comm *comm, weft_unique_id *id)
{
    const uint32_t drawn = UINT32_C(1) << 31; /* keys of launchers count from 0 */
    uint32_t key;
    WEFT__TRY(weft__object_check(WEFT__KIND_COMM, comm, "comm"));
    WEFT__TRY(weft__check_not_null(id, "id"));
    if (comm->point.address[0] == '\0')
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "comm is a rank alone without a rendezvous; weft_unique_id_create "
                           "starts one");
    WEFT__TRY(weft__random_bytes(&key, sizeof key));
    weft__meeting_point_to_id(&comm->point, id);
    weft__unique_id_set_key(id, key | drawn);
    return WEFT_OK;
}

weft_result weft_rendezvous_serve(const weft_unique_id *id)
{
    WEFT__TRY(weft__check_not_null(id, "id"));
    return weft__unique_id_serve(id);
}

int32_t weft_rendezvous_num_ranks(const weft_unique_id *id)
{
    struct weft__meeting_point point;
    if (id == NULL || weft__meeting_point_from_id(&point, id) != WEFT_OK)
        return -1;
    return weft__rendezvous_num_ranks(&point);
}

weft_result weft_env_query(weft_env_info *info)
{
    struct weft__bootstrap bootstrap;
    WEFT__TRY(WEFT__CHECK_OUTPUT(weft_env_info, info, "info"));
    WEFT__TRY(weft__bootstrap_read(&bootstrap));
    const weft_env_info found = {.rank = bootstrap.rank,
                                 .num_ranks = bootstrap.num_ranks,
                                 .launcher = bootstrap.launcher_name,
                                 .rank_variable = bootstrap.rank_name,
                                 .num_ranks_variable = bootstrap.num_ranks_name};
    WEFT__WRITE(weft_env_info, info, &found);
    return WEFT_OK;
}
