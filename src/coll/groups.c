/* SPDX-License-Identifier: MIT */
#include "coll/groups.h"

#include <stdlib.h>

#include "coll/coll.h"
#include "coll/coll_internode.h"

enum {
    SLOT_ALIGNMENT = 16,
    LEAST_SLOT_BYTES = 2 * SLOT_ALIGNMENT, /* a header, and something behind it */
    DEFAULT_SLOTS = 4,
    MAX_SLOTS_OF_ALL = 1 << WP_GRANT_FIRST_BITS,
    LINES_OF_A_BLOCK = 16
};

/* ---------------------------------------------------------------- plan */

/* As many warps as may be busy at a time share GPUs' links; fibers share a core. */
static int32_t default_channels(const weft_comm *comm)
{
    enum { CHANNELS_OF_ALL_PEERS = 64, MOST_CHANNELS = 32 };
    if (weft__machine_of(comm)->kind != WEFT_MACHINE_CUDA)
        return 1;
    const int32_t num_channels = CHANNELS_OF_ALL_PEERS / comm->num_ranks;
    if (num_channels < 1)
        return 1;
    return num_channels < MOST_CHANNELS ? num_channels : MOST_CHANNELS;
}

static int32_t slots_of_a_line(const weft_coll_config *config)
{
    if (config->num_staging_slots == 0)
        return DEFAULT_SLOTS;
    return config->num_staging_slots < WP_GRANT_MAX_SLOTS ? config->num_staging_slots
                                                          : WP_GRANT_MAX_SLOTS;
}

/* One at least for every channel of every rank, if all send at the same time. */
void weft__coll_groups_plan(weft_coll *coll, const weft_coll_config *config)
{
    const weft_comm *comm = coll->comm;
    struct wp_grants *grants = &coll->groups.grants;
    grants->num_channels = config->num_channels > 0 ? config->num_channels : default_channels(comm);
    grants->max_slots = slots_of_a_line(config);
    const uint64_t num_lines = wp_grants_num_pairs(grants, comm->num_ranks);
    if (coll->staging_bytes < num_lines * LEAST_SLOT_BYTES)
        coll->staging_bytes = num_lines * LEAST_SLOT_BYTES;
    const uint64_t most_bytes = coll->staging_bytes / num_lines;
    uint64_t bytes = config->staging_slot_bytes > 0 ? config->staging_slot_bytes
                                                    : weft__coll_defaults(comm)->group_slot_bytes;
    bytes = (bytes + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
    if (bytes > most_bytes)
        bytes = most_bytes / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
    grants->slot_bytes = bytes;
    coll->groups.num_slots = coll->staging_bytes / bytes;
    if (coll->groups.num_slots > MAX_SLOTS_OF_ALL)
        coll->groups.num_slots = MAX_SLOTS_OF_ALL;
}

/* ---------------------------------------------------------------- life */

/* As many as the largest group needs of distinct peers. */
static int32_t most_blocks(const weft_coll *coll)
{
    const int32_t num_lines = (2 * coll->comm->num_ranks - 1) * coll->groups.grants.num_channels;
    return (num_lines + LINES_OF_A_BLOCK - 1) / LINES_OF_A_BLOCK;
}

static weft_result allocate_counters(weft_coll *coll)
{
    struct weft__coll_groups *groups = &coll->groups;
    const uint64_t num_pairs = wp_grants_num_pairs(&groups->grants, coll->comm->num_ranks);
    WEFT__TRY(weft__machine_of(coll->comm)
                  ->alloc(coll->comm, 3 * num_pairs * sizeof(uint64_t), &groups->counters));
    groups->grants.num_posted = groups->counters;
    groups->grants.num_consumed = groups->grants.num_posted + num_pairs;
    groups->grants.last_grants = groups->grants.num_consumed + num_pairs;
    return WEFT_OK;
}

/* Others put to the half of outputs; puts to other nodes read the half of inputs. */
static void find_slots(weft_coll *coll)
{
    struct wp_grants *grants = &coll->groups.grants;
    grants->out_offset = weft__coll_staging_place(coll);
    grants->in_offset = grants->out_offset + (coll->internode != NULL ? coll->staging_bytes : 0);
}

weft_result weft__coll_groups_create(weft_coll *coll)
{
    struct weft__coll_groups *groups = &coll->groups;
    struct wp_grants *grants = &groups->grants;
    weft_comm *comm = coll->comm;
    const struct weft__nodes *nodes = coll->internode != NULL ? &coll->internode->nodes : NULL;
    const uint64_t words_bytes = wp_grants_words_bytes(grants, comm->num_ranks);
    WEFT__TRY(
        weft__exchange_create(comm, nodes, most_blocks(coll), words_bytes, &groups->exchange));
    grants->words_offset = weft__exchange_extra_offset(groups->exchange);
    find_slots(coll);
    WEFT__TRY(weft__comm_agree(comm, allocate_counters(coll), "have counters of steps"));
    if (comm->topology.num_nodes == 1)
        return WEFT_OK;
    WEFT__TRY(weft__machine_of(comm)->network_alloc(comm, words_bytes, &groups->network_words,
                                                    &grants->network_place));
    grants->network_words = groups->network_words;
    return WEFT_OK;
}

void weft__coll_groups_destroy(weft_coll *coll)
{
    const struct weft__machine *machine = weft__machine_of(coll->comm);
    struct weft__coll_groups *groups = &coll->groups;
    weft__coll_tables_destroy(coll);
    machine->network_free(coll->comm, groups->network_words);
    machine->free(coll->comm, groups->counters);
    weft__exchange_destroy(groups->exchange);
    free(groups->group.transfers);
}
