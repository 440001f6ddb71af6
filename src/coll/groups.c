/* SPDX-License-Identifier: MIT */
#include "coll/groups.h"

#include "coll/coll.h"

/* ---------------------------------------------------------------- life */

enum { SLOT_ALIGNMENT = WP_FIFO_SLOT_ALIGNMENT, BLOCK_WARPS = 16, DEFAULT_SLOTS = 4 };

/* As many warps as may be busy at a time share GPUs' links; fibers share a core. */
static int32_t default_channels(const weft_comm *comm)
{
    enum { CHANNELS_OF_ALL_PEERS = 64, MOST_CHANNELS = 32 };
    if (weft__machine_of(comm)->kind != WEFT_MACHINE_CUDA)
        return 1;
    const int32_t num_channels = CHANNELS_OF_ALL_PEERS / comm->num_ranks;
    return num_channels < MOST_CHANNELS ? num_channels : MOST_CHANNELS;
}

static uint64_t default_slot_bytes(const weft_comm *comm, const struct weft__coll_groups *groups)
{
    enum { LEAST_SLOT_BYTES = 1 << 10 };
    const uint64_t bytes = weft__coll_defaults(comm)->group_bytes;
    const uint64_t num_slots = (uint64_t)comm->num_ranks * (uint64_t)groups->num_channels *
                               (uint64_t)groups->fifos.num_slots;
    return bytes / num_slots > LEAST_SLOT_BYTES ? bytes / num_slots : LEAST_SLOT_BYTES;
}

void weft__coll_groups_plan(const weft_comm *comm, const weft_coll_config *config,
                            struct weft__coll_groups *groups)
{
    struct wp_fifos *fifos = &groups->fifos;
    groups->num_channels = config->num_channels > 0 ? config->num_channels : default_channels(comm);
    fifos->num_slots = config->num_staging_slots > 0 ? config->num_staging_slots : DEFAULT_SLOTS;
    fifos->num_senders = comm->num_ranks;
    fifos->slot_bytes = config->staging_slot_bytes > 0 ? config->staging_slot_bytes
                                                       : default_slot_bytes(comm, groups);
    fifos->slot_bytes = (fifos->slot_bytes + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
}

/* Blocks are as many as channels, of which fifos have words, and as many as the largest group needs. */
static int32_t most_blocks(const weft_comm *comm, const struct weft__coll_groups *groups)
{
    const int32_t most_warps = (2 * comm->num_ranks - 1) * groups->num_channels;
    const int32_t num_blocks = (most_warps + BLOCK_WARPS - 1) / BLOCK_WARPS;
    return num_blocks > groups->num_channels ? num_blocks : groups->num_channels;
}

static uint64_t slots_bytes(const struct weft__coll_groups *groups)
{
    const struct wp_fifos *fifos = &groups->fifos;
    return (uint64_t)fifos->num_senders * (uint64_t)groups->num_channels *
           (uint64_t)fifos->num_slots * fifos->slot_bytes;
}

/* All warps of a channel's other end find what they have to find zeroed. */
static weft_result allocate_counters(weft_coll *coll)
{
    struct weft__coll_groups *groups = &coll->groups;
    const struct wp_exchange *exchange = &groups->exchange->device;
    WEFT__TRY(weft__machine_of(coll->comm)
                  ->alloc(coll->comm, wp_fifos_words_bytes(exchange), &groups->counters));
    groups->fifos.num_posted = groups->counters;
    groups->fifos.num_consumed = groups->fifos.num_posted + wp_fifos_num_pairs(exchange);
    return WEFT_OK;
}

weft_result weft__coll_groups_create(weft_coll *coll)
{
    struct weft__coll_groups *groups = &coll->groups;
    const int32_t max_blocks = most_blocks(coll->comm, groups);
    const struct wp_exchange counted = {.num_ranks = coll->comm->num_ranks,
                                        .max_blocks = max_blocks};
    const uint64_t words_bytes = wp_fifos_words_bytes(&counted);
    WEFT__TRY(weft__exchange_create(coll->comm, NULL, max_blocks, words_bytes + slots_bytes(groups),
                                    &groups->exchange));
    groups->fifos.words_offset = weft__exchange_extra_offset(groups->exchange);
    groups->fifos.slots_offset = groups->fifos.words_offset + words_bytes;
    return weft__comm_agree(coll->comm, allocate_counters(coll), "have counters of steps");
}

void weft__coll_groups_destroy(weft_coll *coll)
{
    weft__machine_of(coll->comm)->free(coll->comm, coll->groups.counters);
    weft__exchange_destroy(coll->groups.exchange);
}

/* ---------------------------------------------------------------- lists */

static struct wp_transfer transfer_of(const struct weft__coll_transfer *transfer)
{
    return (struct wp_transfer){
        transfer->memory, (uint64_t)transfer->dtype << WP_TRANSFER_DTYPE_BIT | transfer->bytes};
}

/* Appends what goes between this rank and the peer in the direction. */
static void add_list(const struct weft__coll_group *group, int32_t peer,
                     enum wp_direction direction, struct wp_send_receive_args *args,
                     int32_t *num_transfers)
{
    const int32_t first = *num_transfers;
    for (int32_t i = 0; i < group->num_transfers; i++) {
        const struct weft__coll_transfer *transfer = &group->transfers[i];
        if (transfer->peer == peer && transfer->direction == direction)
            args->transfers[(*num_transfers)++] = transfer_of(transfer);
    }
    if (*num_transfers > first)
        args->lists[args->num_lists++] =
            (struct wp_transfer_list){(uint16_t)peer, (uint16_t)direction, (uint16_t)first,
                                      (uint16_t)(*num_transfers - first)};
}

static const struct weft__coll_transfer *find_own(const weft_coll *coll,
                                                  enum wp_direction direction, int32_t idx)
{
    const struct weft__coll_group *group = &coll->groups.group;
    for (int32_t i = 0; i < group->num_transfers; i++) {
        const struct weft__coll_transfer *transfer = &group->transfers[i];
        if (transfer->peer == coll->comm->rank && transfer->direction == direction && idx-- == 0)
            return transfer;
    }
    return NULL;
}

/* Appends what this rank sends itself: each send, then its receive. */
static weft_result add_own_pairs(const weft_coll *coll, struct wp_send_receive_args *args,
                                 int32_t *num_transfers)
{
    const int32_t rank = coll->comm->rank, first = *num_transfers;
    for (int32_t i = 0;; i++) {
        const struct weft__coll_transfer *sent = find_own(coll, WP_DIRECTION_SEND, i);
        const struct weft__coll_transfer *received = find_own(coll, WP_DIRECTION_RECEIVE, i);
        if (sent == NULL && received == NULL)
            break;
        if (sent == NULL || received == NULL)
            return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                               "peer: the group has no %s number %d of rank %d to go with its %s "
                               "itself",
                               sent == NULL ? "send" : "receive", i, rank,
                               sent == NULL ? "receive from" : "send to");
        if (sent->bytes != received->bytes || sent->dtype != received->dtype)
            return weft__error(
                WEFT_ERROR_INVALID_ARGUMENT,
                "count or dtype: what rank %d sends itself, number %d, is %llu bytes "
                "of %s, what it receives %llu of %s",
                rank, i, (unsigned long long)sent->bytes,
                weft__constant_name(WEFT__ENUM_DTYPE, (int64_t)sent->dtype),
                (unsigned long long)received->bytes,
                weft__constant_name(WEFT__ENUM_DTYPE, (int64_t)received->dtype));
        args->transfers[(*num_transfers)++] = transfer_of(sent);
        args->transfers[(*num_transfers)++] = transfer_of(received);
    }
    if (*num_transfers > first)
        args->lists[args->num_lists++] = (struct wp_transfer_list){
            (uint16_t)rank, WP_DIRECTION_SELF, (uint16_t)first, (uint16_t)(*num_transfers - first)};
    return WEFT_OK;
}

/* ---------------------------------------------------------------- launches */

/* A warp for each channel of each list. Copy engines do not see at once what peers have stored. */
static struct weft__grid grid_of(const struct wp_send_receive_args *args)
{
    const int32_t num_lines = args->num_lists * args->num_channels;
    return (struct weft__grid){.num_blocks = (num_lines + BLOCK_WARPS - 1) / BLOCK_WARPS,
                               .num_warps = num_lines < BLOCK_WARPS ? num_lines : BLOCK_WARPS};
}

weft_result weft__coll_groups_launch(weft_coll *coll)
{
    const struct weft__coll_groups *groups = &coll->groups;
    struct wp_send_receive_args args = {.exchange = groups->exchange->device,
                                        .fifos = groups->fifos,
                                        .num_channels = groups->num_channels};
    int32_t num_transfers = 0;
    WEFT__TRY(add_own_pairs(coll, &args, &num_transfers));
    for (int32_t i = 1; i < coll->comm->num_ranks; i++) { /* not all to rank 0 first */
        const int32_t peer = wp_rank_after(&args.exchange, i);
        add_list(&groups->group, peer, WP_DIRECTION_SEND, &args, &num_transfers);
        add_list(&groups->group, peer, WP_DIRECTION_RECEIVE, &args, &num_transfers);
    }
    if (num_transfers == 0)
        return WEFT_OK;
    /* In the order of the other operations of coll. */
    return weft__exchange_launch(coll->exchange, groups->group.stream, WP_PROGRAM_send_receive,
                                 grid_of(&args), &args, sizeof args);
}
