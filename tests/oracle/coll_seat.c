/* SPDX-License-Identifier: MIT */
#include "oracle/coll_seat.h"

/* As little as rows of COLL_SEAT_LARGE elements from and to each rank need. */
enum { PACKET_BYTES = 4096, STAGING_BYTES = 1 << 20, ARENA_BYTES = 2 << 20 };

int coll_seat_open(struct coll_seat *seat, struct ranks_context *context, uint32_t timeout_ms,
                   const struct coll_case *spec, weft_algorithm algorithm)
{
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_coll_config coll_config = WEFT_INIT(weft_coll_config);
    struct coll_case of_algorithm = *spec;
    of_algorithm.order = elements_order_of(algorithm);
    config.timeout_ms = timeout_ms;
    config.num_nodes = spec->nodes.num_nodes;
    coll_config.packet_bytes = PACKET_BYTES;
    coll_config.staging_bytes = STAGING_BYTES;
    coll_config.choices = WEFT_ARGS(
        weft_coll_choice, .collective = coll_collective(spec->operation), .algorithm = algorithm);
    coll_config.num_choices = 1;
    coll_config.num_blocks = 2;
    coll_config.num_warps = 2;
    if (ep_rank_open_with(&seat->rank, context, &config, ARENA_BYTES))
        return 1;
    CHECK_OK(weft_coll_create(seat->rank.comm, &coll_config, &seat->coll));
    return coll_check(&seat->rank, seat->coll, &of_algorithm, "before") ||
           coll_call_create(&seat->rank, &of_algorithm, &seat->call);
}

int coll_seat_close(struct coll_seat *seat)
{
    /* An error of a call can come before those of what it has enqueued already. */
    (void)weft_stream_synchronize(seat->rank.stream);
    if (coll_call_destroy(&seat->rank, &seat->call))
        return 1;
    CHECK_OK(weft_coll_destroy(seat->coll));
    return ep_rank_close(&seat->rank);
}

static weft_result issue(void *self)
{
    const struct coll_seat *seat = self;
    return coll_call_issue(&seat->call, seat->rank.context->rank, seat->coll, seat->rank.stream);
}

weft_result coll_seat_call(const struct coll_seat *seat)
{
    const weft_result result = issue((void *)(uintptr_t)seat);
    return result != WEFT_OK ? result : weft_stream_synchronize(seat->rank.stream);
}

static int close_seat(void *self)
{
    return coll_seat_close(self);
}

struct victim_seat coll_seat_of_victim(struct coll_seat *seat)
{
    return (struct victim_seat){
        seat->rank.context, seat->rank.comm, seat->rank.stream, issue, close_seat, seat};
}
