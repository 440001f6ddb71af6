/* SPDX-License-Identifier: MIT */
#include "coll/coll.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coll/coll_internode.h"
#include "comm/host/settings.h"
#include "launch/names.h"
#include "programs/coll/relayed_broadcast.h"

struct contribution {
    int64_t packet_bytes, staging_bytes, num_blocks;
    int64_t num_channels, num_staging_slots, staging_slot_bytes; /* as asked for */
    int64_t algorithms[WEFT__NUM_COLLECTIVES];
    int32_t direct_blocks[WEFT__NUM_WORKS]; /* may differ: the fewest are used */
    struct weft__coll_wire wire;            /* may differ: see between.c */
    char device[WEFT__TUNING_NAME_BYTES];   /* may differ: then no table is shipped for it */
};

static const struct weft__term terms[] = {
    {WEFT__TERM(struct contribution, packet_bytes)},
    {WEFT__TERM(struct contribution, staging_bytes)},
    {WEFT__TERM(struct contribution, num_blocks)},
    {WEFT__TERM(struct contribution, num_channels)},
    {WEFT__TERM(struct contribution, num_staging_slots)},
    {WEFT__TERM(struct contribution, staging_slot_bytes)},
};

static const char *algorithm_name(int64_t algorithm)
{
    return weft__constant_name(WEFT__ENUM_ALGORITHM, (int32_t)algorithm);
}

static weft_result compare(const weft_comm *comm, const struct contribution *all)
{
    WEFT__TRY(weft__comm_compare(comm, all, sizeof *all, terms, sizeof terms / sizeof *terms));
    for (int i = 0; i < WEFT__NUM_COLLECTIVES; i++) {
        char name[64];
        snprintf(name, sizeof name, "the algorithm of %s",
                 weft__constant_name(WEFT__ENUM_COLLECTIVE, i));
        const struct weft__term term = {
            name, offsetof(struct contribution, algorithms) + (size_t)i * sizeof(int64_t),
            algorithm_name};
        WEFT__TRY(weft__comm_compare(comm, all, sizeof *all, &term, 1));
    }
    return WEFT_OK;
}

static void agree_on_blocks(weft_coll *coll, const struct contribution *all)
{
    for (int kind = 0; kind < WEFT__NUM_WORKS; kind++) {
        coll->direct_blocks[kind] = all[0].direct_blocks[kind];
        for (int32_t rank = 1; rank < coll->comm->num_ranks; rank++) {
            if (all[rank].direct_blocks[kind] < coll->direct_blocks[kind])
                coll->direct_blocks[kind] = all[rank].direct_blocks[kind];
        }
    }
}

static void agree_on_wires(weft_coll *coll, const struct contribution *all)
{
    for (int32_t rank = 0; rank < coll->comm->num_ranks; rank++)
        weft__coll_add_wire(&coll->wire, &all[rank].wire);
}

static void agree_on_device(weft_coll *coll, const struct contribution *all)
{
    memcpy(coll->device, all[0].device, sizeof coll->device);
    for (int32_t rank = 1; rank < coll->comm->num_ranks; rank++) {
        if (strcmp(all[rank].device, coll->device) != 0)
            coll->device[0] = '\0';
    }
}

static weft_result agree(weft_coll *coll)
{
    weft_comm *comm = coll->comm;
    struct contribution own = {.packet_bytes = (int64_t)coll->area.region_bytes,
                               .staging_bytes = (int64_t)coll->staging_bytes,
                               .num_blocks = coll->num_blocks,
                               .num_channels = coll->asked.num_channels,
                               .num_staging_slots = coll->asked.num_slots,
                               .staging_slot_bytes = (int64_t)coll->asked.slot_bytes};
    for (int i = 0; i < WEFT__NUM_COLLECTIVES; i++)
        own.algorithms[i] = coll->pinned[i];
    weft__coll_choose_direct_blocks(coll, own.direct_blocks);
    weft__coll_measured_device(comm, own.device);
    own.wire = weft__coll_own_wire(comm);
    weft_result result;
    struct contribution *all = weft__comm_gather_new(comm, WEFT_OK, &own, sizeof own, &result);
    if (all == NULL)
        return result;
    result = compare(comm, all);
    if (result == WEFT_OK) {
        agree_on_blocks(coll, all);
        agree_on_device(coll, all);
        agree_on_wires(coll, all);
    }
    free(all);
    return result;
}

/* Rank 0 sends its table: the rows of this communicator, or why there are none. */
struct told_tuning {
    int32_t result;
    char message[WEFT__ERROR_BYTES];
    struct weft__tuning tuning;
};

static void read_tuning(const weft_coll *coll, struct told_tuning *told)
{
    const weft_comm *comm = coll->comm;
    const char *path = weft__setting_text(WEFT__SETTING_TUNING);
    const struct weft__tuning_key key = {comm->hooks->name, comm->num_ranks};
    if (comm->rank != 0)
        return;
    if (path != NULL)
        told->result = (int32_t)weft__tuning_read(path, &key, &told->tuning);
    if (told->result == WEFT_OK)
        told->result = (int32_t)weft__tuning_add_shipped(coll->device, &key, &told->tuning);
    if (told->result != WEFT_OK)
        snprintf(told->message, sizeof told->message, "%s", weft__last_error());
}

/* Launches may have as many blocks as a row of the table wants, if the config does not say how
 * many. */
static void make_room_for_blocks(weft_coll *coll)
{
    for (int32_t i = 0; i < coll->tuning.num_rows && coll->num_blocks == 0; i++) {
        if (coll->tuning.rows[i].num_blocks > coll->area.exchange.max_blocks)
            coll->area.exchange.max_blocks = coll->tuning.rows[i].num_blocks;
    }
}

static weft_result agree_on_tuning(weft_coll *coll)
{
    weft_comm *comm = coll->comm;
    weft_result result;
    struct told_tuning *own =
        weft__comm_calloc(comm, sizeof *own, "have the table of algorithms", &result);
    if (own == NULL)
        return result;
    read_tuning(coll, own);
    struct told_tuning *told = weft__comm_gather_new(comm, WEFT_OK, own, sizeof *own, &result);
    free(own);
    if (told == NULL)
        return result;
    if (told[0].result != WEFT_OK)
        result =
            weft__error((weft_result)told[0].result, "rank 0's WEFT_TUNING: %s", told[0].message);
    else
        coll->tuning = told[0].tuning;
    make_room_for_blocks(coll);
    free(told);
    return result;
}

/* Packets and direct access are for a few ranks of one node. */
static int goes_by_rails(const weft_comm *comm)
{
    return comm->topology.num_nodes > 1 || comm->num_ranks > WEFT_COLL_MAX_RANKS;
}

weft_result weft__coll_check_reach(weft_comm *comm)
{
    return comm->topology.num_nodes > 1 ? WEFT_OK : weft__exchange_check_reach(comm, "collectives");
}

static void find_areas(weft_coll *coll)
{
    char *const *heap_bases = weft__heap_bases(coll->comm->heap);
    const uint64_t offset = weft__exchange_extra_offset(coll->exchange);
    for (int32_t rank = 0; rank < coll->comm->num_ranks; rank++)
        coll->area.areas[rank] = heap_bases[rank] + offset;
}

static weft_result create_exchange(weft_coll *coll)
{
    const struct weft__nodes *nodes = coll->internode != NULL ? &coll->internode->nodes : NULL;
    /* Behind the mailbox: packets and the words of relays, but by rails. */
    const uint64_t extra_bytes =
        coll->internode != NULL
            ? 0
            : wp_packet_area_bytes(&coll->area) + wp_relayed_words_bytes(&coll->area.exchange);
    WEFT__TRY(weft__exchange_create(coll->comm, nodes, coll->area.exchange.max_blocks, extra_bytes,
                                    &coll->exchange));
    coll->area.exchange = coll->exchange->device;
    return WEFT_OK;
}

static weft_result set_up(weft_coll *coll)
{
    weft_comm *comm = coll->comm;
    void *staging;
    WEFT__TRY(agree(coll));
    WEFT__TRY(agree_on_tuning(coll));
    if (coll->internode != NULL)
        WEFT__TRY(weft__coll_internode_create_nodes(coll));
    WEFT__TRY(create_exchange(coll));
    if (coll->internode != NULL)
        WEFT__TRY(weft__coll_internode_create_rings(coll));
    WEFT__TRY(
        weft__heap_alloc(comm, coll->staging_bytes * (coll->internode != NULL ? 2 : 1), &staging));
    coll->staging = staging;
    WEFT__TRY(weft__coll_groups_create(coll));
    if (coll->internode == NULL)
        find_areas(coll);
    return WEFT_OK;
}

static uint64_t round_up(uint64_t bytes, uint64_t multiple)
{
    return (bytes + multiple - 1) / multiple * multiple;
}

static void choose_sizes(weft_coll *coll, const weft_coll_config *config)
{
    enum { REGION_MULTIPLE = 256, STAGING_BYTES = 8 << 20, ALIGNMENT = 16 };
    const int32_t num_ranks = coll->comm->num_ranks;
    /* A piece of a row for every rank, aligned. */
    const uint64_t staging_multiple =
        ALIGNMENT * (uint64_t)(num_ranks > WEFT_COLL_MAX_RANKS ? num_ranks : WEFT_COLL_MAX_RANKS);
    const struct weft__coll_defaults *defaults = weft__coll_defaults(coll->comm);
    uint64_t packet_bytes = config->packet_bytes;
    uint64_t staging_bytes = config->staging_bytes;
    if (packet_bytes == 0)
        packet_bytes = defaults->packet_bytes / (uint64_t)num_ranks;
    if (staging_bytes == 0)
        staging_bytes = STAGING_BYTES;
    coll->num_blocks = config->num_blocks;
    coll->num_warps = config->num_warps;
    coll->chunk_bytes = defaults->chunk_bytes;
    coll->staging_bytes = round_up(staging_bytes, staging_multiple);
    coll->area.exchange.num_ranks = coll->comm->num_ranks;
    coll->area.region_bytes = round_up(packet_bytes, REGION_MULTIPLE);
    coll->area.exchange.max_blocks = weft__machine_of(coll->comm)->max_blocks;
    if (coll->num_blocks > 0)
        coll->area.exchange.max_blocks = coll->num_blocks;
    coll->piece_bytes = defaults->piece_bytes;
}

weft_result weft__coll_create(weft_comm *comm, const weft_coll_config *config, weft_coll **out)
{
    weft_result result;
    weft_coll *coll = weft__comm_calloc(comm, sizeof *coll, "have a weft_coll", &result);
    if (coll == NULL)
        return result;
    coll->comm = comm;
    coll->asked = (struct weft__coll_asked){config->num_channels, config->num_staging_slots,
                                            config->staging_slot_bytes};
    if (goes_by_rails(comm)) {
        coll->internode =
            weft__comm_calloc(comm, sizeof *coll->internode, "have a weft_coll", &result);
        if (coll->internode == NULL) {
            free(coll);
            return result;
        }
        weft__coll_internode_plan(comm, config, &coll->internode->rings);
    }
    for (int32_t i = 0; i < config->num_choices; i++)
        coll->pinned[config->choices[i].collective] = config->choices[i].algorithm;
    choose_sizes(coll, config);
    weft__coll_groups_plan(coll, config);
    result = set_up(coll);
    if (result != WEFT_OK) {
        weft__coll_destroy(coll);
        return result;
    }
    *out = coll;
    return WEFT_OK;
}

void weft__coll_destroy(weft_coll *coll)
{
    if (coll->exchange != NULL)
        weft__exchange_wait(coll->exchange);
    if (coll->staging != NULL)
        (void)weft__heap_free(coll->comm->heap, coll->staging);
    weft__coll_groups_destroy(coll);
    weft__exchange_destroy(coll->exchange);
    weft__coll_internode_destroy(coll);
    free(coll);
}
