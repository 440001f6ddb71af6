/* SPDX-License-Identifier: MIT */
/* How much crosses the network: a token's row once for each other node that has one of its experts,
 * and in combine a row back; with rows of 14 KiB all else, headers and credits, is below 2 % unless
 * slots hold but one row. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_trials.h"

enum { ROW_BYTES = 14336, ARENA_BYTES = 24 << 20 };

static int32_t node_of(const struct ep_world *world, int32_t rank)
{
    return rank / (world->spec.num_ranks / world->spec.num_nodes);
}

struct counts {
    uint64_t out; /* own tokens, for other nodes one by one */
    uint64_t in;  /* of the partners in other nodes, for the own node */
};

static struct counts count_rows(const struct ep_world *world, int32_t rank)
{
    const int32_t own_node = node_of(world, rank);
    struct counts counts = {0, (uint64_t)ep_oracle_num_relayed(&world->problem, rank)};
    for (int32_t node = 0; node < world->spec.num_nodes; node++)
        if (node != own_node)
            counts.out += (uint64_t)ep_oracle_rows_for_node(&world->problem, rank, node);
    return counts;
}

/* Until now; without the quiet the last credits could still be waiting to be sent, and counted. */
static int sent_bytes(struct ep_rank *self, uint64_t *bytes)
{
    weft_net_info info = WEFT_INIT(weft_net_info);
    CHECK_OK(weft_rma_quiet(self->comm, self->stream));
    CHECK_OK(weft_stream_synchronize(self->stream));
    CHECK_OK(weft_comm_host_barrier(self->comm));
    CHECK_OK(weft_net_query(self->comm, &info));
    *bytes = info.sent_bytes;
    CHECK_OK(weft_comm_host_barrier(self->comm)); /* nobody goes on before */
    return 0;
}

struct traffic {
    uint64_t num_bytes, num_rows;
};

/* A rank sends at least its rows. Credits it sends for those of others: so the rest is counted of
 * all ranks. */
static int check_bytes(struct ep_rank *self, const char *operation, uint64_t before,
                       uint64_t num_rows)
{
    uint64_t after;
    struct traffic own, all[RANKS_MAX], sum = {0, 0};
    if (sent_bytes(self, &after))
        return 1;
    own = (struct traffic){after - before, num_rows};
    CHECK(own.num_bytes >= num_rows * ROW_BYTES, "%s sent %llu bytes for %llu rows of %d",
          operation, (unsigned long long)own.num_bytes, (unsigned long long)num_rows, ROW_BYTES);
    CHECK_OK(weft_comm_host_all_gather(self->comm, &own, sizeof own, all));
    for (int32_t rank = 0; rank < self->context->num_ranks; rank++) {
        sum.num_bytes += all[rank].num_bytes;
        sum.num_rows += all[rank].num_rows;
    }
    const uint64_t payload = sum.num_rows * ROW_BYTES;
    const uint64_t per_mille = self->world->spec.staging_slot_bytes == 0 ? 1020 : 1025;
    CHECK(sum.num_bytes * 1000 <= payload * per_mille,
          "%s: all ranks sent %llu bytes for %llu rows of %d", operation,
          (unsigned long long)sum.num_bytes, (unsigned long long)sum.num_rows, ROW_BYTES);
    return 0;
}

/* Dispatch, the same again, and combine. */
static int count_layer(struct ranks_context *context)
{
    const struct ep_world *world = context->argument;
    const struct counts counts = count_rows(world, context->rank);
    struct ep_dispatch_shape dispatch = ep_dispatch_shape_of(ROW_BYTES);
    const struct ep_combine_shape combine = ep_combine_shape_of(WEFT_BF16, ROW_BYTES / 2);
    struct ep_rank self;
    uint64_t before;
    if (ep_rank_open(&self, context, world->spec.num_nodes, ARENA_BYTES) ||
        ep_rank_enter(&self, world) || ep_route(&self))
        return 1;
    CHECK_OK(weft_stream_synchronize(self.stream));
    for (dispatch.round = 0; dispatch.round < 2; dispatch.round++)
        if (sent_bytes(&self, &before) || ep_check_dispatch(&self, &dispatch) ||
            check_bytes(&self, "dispatch", before, counts.out))
            return 1;
    if (sent_bytes(&self, &before) || ep_check_combine(&self, &combine) ||
        check_bytes(&self, "combine", before, counts.in))
        return 1;
    return ep_rank_leave(&self) || ep_rank_close(&self);
}

/* Slots of one row have the most headers. */
static void run(int32_t num_nodes, int32_t num_local, uint64_t staging_slot_bytes)
{
    const struct ep_case spec = {.seed = 45,
                                 .num_ranks = num_nodes * num_local,
                                 .num_nodes = num_nodes,
                                 .max_tokens = 16,
                                 .num_topk = 8,
                                 .num_experts = 64,
                                 .tokens = EP_TOKENS_RAGGED,
                                 .num_channels = 2,
                                 .num_staging_slots = 4,
                                 .staging_slot_bytes = staging_slot_bytes};
    assert_int_equal(ep_case_run(&spec, RANKS_PROCESSES, count_layer), 0);
}

TEST_OVER_ENGINES(a_row_for_each_other_node)
{
    run(2, 1, 0);
    run(2, 4, 15 << 10);
    run(4, 2, 0);
}
