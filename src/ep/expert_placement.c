/* SPDX-License-Identifier: MIT */
#include "ep/expert_placement.h"

#include <stdlib.h>
#include <string.h>

#include "comm/host/error.h"

/* One after the other; the last one is for the host alone. */
static weft_result allocate(struct weft__placement *placement, int32_t num_experts,
                            int32_t num_entries, int32_t num_ranks)
{
    const size_t num_words = (size_t)num_experts + 1 + (size_t)num_ranks + 1;
    placement->num_entries = num_entries;
    placement->expert_offsets = calloc(num_words + 4 * (size_t)num_entries, sizeof(int32_t));
    WEFT__CHECK_MEMORY(placement->expert_offsets, "no memory to place %d experts", num_experts);
    placement->rank_offsets = placement->expert_offsets + num_experts + 1;
    placement->entry_ranks = placement->rank_offsets + num_ranks + 1;
    placement->entry_local = placement->entry_ranks + num_entries;
    placement->rank_entries = placement->entry_local + num_entries;
    placement->entry_experts = placement->rank_entries + num_entries;
    return WEFT_OK;
}

/* Expert e is on the rank r with num_experts*r/R <= e < num_experts*(r+1)/R. */
static void place_evenly(struct weft__placement *placement, int32_t num_experts, int32_t num_ranks)
{
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        const int32_t begin = (int32_t)((int64_t)num_experts * rank / num_ranks);
        const int32_t end = (int32_t)((int64_t)num_experts * (rank + 1) / num_ranks);
        for (int32_t expert = begin; expert < end; expert++) {
            placement->expert_offsets[expert] = expert;
            placement->entry_ranks[expert] = rank;
        }
    }
    placement->expert_offsets[num_experts] = num_experts;
}

static weft_result check_offsets(const weft_ep_config *config)
{
    const int32_t *offsets = config->expert_offsets;
    if (config->expert_ranks == NULL)
        return weft__invalid(
            "expert_ranks is NULL but expert_offsets is not: give both or neither");
    if (offsets[0] != 0)
        return weft__invalid("expert_offsets[0] is %d, must be 0", offsets[0]);
    for (int32_t expert = 0; expert < config->num_experts; expert++) {
        if (offsets[expert + 1] <= offsets[expert])
            return weft__invalid("expert_offsets[%d] is %d, must be above expert_offsets[%d] = %d: "
                                 "every expert is on at least one rank",
                                 expert + 1, offsets[expert + 1], expert, offsets[expert]);
    }
    return WEFT_OK;
}

/* last_expert[rank]: the last expert seen there, to find a rank that is named twice. */
static weft_result copy_table(struct weft__placement *placement, const weft_ep_config *config,
                              int32_t num_ranks, int32_t *last_expert)
{
    for (int32_t rank = 0; rank < num_ranks; rank++)
        last_expert[rank] = -1;
    memcpy(placement->expert_offsets, config->expert_offsets,
           ((size_t)config->num_experts + 1) * sizeof(int32_t));
    for (int32_t expert = 0; expert < config->num_experts; expert++) {
        for (int32_t i = config->expert_offsets[expert]; i < config->expert_offsets[expert + 1];
             i++) {
            const int32_t rank = config->expert_ranks[i];
            if (rank < 0 || rank >= num_ranks)
                return weft__invalid("expert_ranks[%d] (of expert %d) is %d, allowed are 0..%d", i,
                                     expert, rank, num_ranks - 1);
            if (last_expert[rank] == expert)
                return weft__invalid("expert_ranks[%d] is %d, which is named twice for expert %d",
                                     i, rank, expert);
            last_expert[rank] = expert;
            placement->entry_ranks[i] = rank;
        }
    }
    return WEFT_OK;
}

static weft_result place_by_table(struct weft__placement *placement, const weft_ep_config *config,
                                  int32_t num_ranks)
{
    int32_t *last_expert = calloc((size_t)num_ranks, sizeof(int32_t));
    WEFT__CHECK_MEMORY(last_expert, "no memory to check the expert placement");
    const weft_result result = copy_table(placement, config, num_ranks, last_expert);
    free(last_expert);
    return result;
}

/* Entries ascend by expert, so counting them off rank by rank numbers local experts in that
 * order. */
static void invert(struct weft__placement *placement, int32_t num_experts, int32_t num_ranks)
{
    for (int32_t expert = 0; expert < num_experts; expert++) {
        for (int32_t entry = placement->expert_offsets[expert];
             entry < placement->expert_offsets[expert + 1]; entry++) {
            placement->entry_experts[entry] = expert;
            placement->entry_local[entry] =
                placement->rank_offsets[placement->entry_ranks[entry] + 1]++;
        }
    }
    for (int32_t rank = 0; rank < num_ranks; rank++)
        placement->rank_offsets[rank + 1] += placement->rank_offsets[rank];
    for (int32_t entry = 0; entry < placement->num_entries; entry++) {
        const int32_t first = placement->rank_offsets[placement->entry_ranks[entry]];
        placement->rank_entries[first + placement->entry_local[entry]] = entry;
    }
}

/* Whether wp_place_expert may do so. */
static int can_divide(int32_t num_experts, int32_t num_ranks)
{
    const int32_t larger = num_experts > num_ranks ? num_experts : num_ranks;
    return (int64_t)num_experts * num_ranks <= (INT64_C(1) << 31) / larger;
}

weft_result weft__placement_create(struct weft__placement *placement, const weft_ep_config *config,
                                   int32_t num_ranks)
{
    const int has_table = config->expert_offsets != NULL;
    weft_result result = WEFT_OK;
    if (has_table)
        result = check_offsets(config);
    else if (config->expert_ranks != NULL)
        result =
            weft__invalid("expert_offsets is NULL but expert_ranks is not: give both or neither");
    if (result != WEFT_OK)
        return result;

    const int32_t num_entries =
        has_table ? config->expert_offsets[config->num_experts] : config->num_experts;
    *placement = (struct weft__placement){0};
    result = allocate(placement, config->num_experts, num_entries, num_ranks);
    if (result == WEFT_OK && has_table)
        result = place_by_table(placement, config, num_ranks);
    if (result != WEFT_OK) {
        weft__placement_destroy(placement);
        return result;
    }
    if (!has_table)
        place_evenly(placement, config->num_experts, num_ranks);
    invert(placement, config->num_experts, num_ranks);
    placement->host = (struct wp_placement){
        .num_experts = config->num_experts,
        .num_ranks = num_ranks,
        .is_even = !has_table && can_divide(config->num_experts, num_ranks),
        .experts_reciprocal = wp_reciprocal((uint32_t)config->num_experts),
        .ranks_reciprocal = wp_reciprocal((uint32_t)num_ranks),
        .expert_offsets = placement->expert_offsets,
        .entry_ranks = placement->entry_ranks,
        .entry_local = placement->entry_local,
        .rank_offsets = placement->rank_offsets,
        .rank_entries = placement->rank_entries,
    };
    return WEFT_OK;
}

weft_result weft__placement_upload(struct weft__placement *placement, weft_comm *comm)
{
    const struct wp_placement *host = &placement->host;
    struct wp_placement *device = &placement->device;
    const size_t num_words = (size_t)(placement->entry_experts - placement->expert_offsets);
    void *tables = NULL;
    WEFT__TRY(
        weft__machine_duplicate(comm, host->expert_offsets, num_words * sizeof(int32_t), &tables));
    *device = *host;
    device->expert_offsets = tables;
    device->rank_offsets = device->expert_offsets + (host->rank_offsets - host->expert_offsets);
    device->entry_ranks = device->expert_offsets + (host->entry_ranks - host->expert_offsets);
    device->entry_local = device->expert_offsets + (host->entry_local - host->expert_offsets);
    device->rank_entries = device->expert_offsets + (host->rank_entries - host->expert_offsets);
    return WEFT_OK;
}

void weft__placement_unload(struct weft__placement *placement, weft_comm *comm)
{
    void *tables = (void *)(uintptr_t)placement->device.expert_offsets;
    weft__machine_of(comm)->free(comm, tables);
    placement->device = (struct wp_placement){0};
}

void weft__placement_destroy(struct weft__placement *placement)
{
    free(placement->expert_offsets);
    *placement = (struct weft__placement){0};
}

int32_t weft__placement_num_local(const struct weft__placement *placement, int32_t rank)
{
    return placement->rank_offsets[rank + 1] - placement->rank_offsets[rank];
}

int32_t weft__placement_max_local(const struct weft__placement *placement)
{
    int32_t most = 0;
    for (int32_t rank = 0; rank < placement->host.num_ranks; rank++) {
        const int32_t num_local = weft__placement_num_local(placement, rank);
        most = num_local > most ? num_local : most;
    }
    return most;
}

/* Whether a token with source rank + token index = sum can choose an expert of `rank`: it is the
 * sum that picks among replicas. */
static int can_come(const struct weft__placement *placement, int32_t rank, int64_t sum)
{
    for (int32_t i = placement->rank_offsets[rank]; i < placement->rank_offsets[rank + 1]; i++) {
        const int32_t entry = placement->rank_entries[i];
        const int32_t *range = &placement->expert_offsets[placement->entry_experts[entry]];
        if (sum % (range[1] - range[0]) == entry - range[0])
            return 1;
    }
    return 0;
}

static int has_sole_expert(const struct weft__placement *placement, int32_t rank)
{
    for (int32_t i = placement->rank_offsets[rank]; i < placement->rank_offsets[rank + 1]; i++) {
        const int32_t expert = placement->entry_experts[placement->rank_entries[i]];
        if (placement->expert_offsets[expert + 1] - placement->expert_offsets[expert] == 1)
            return 1;
    }
    return 0;
}

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t weft__placement_max_rows(const struct weft__placement *placement, int32_t rank,
                                 int32_t num_tokens)
{
    const int64_t num_ranks = placement->host.num_ranks;
    if (weft__placement_num_local(placement, rank) == 0 || num_tokens == 0)
        return 0;
    if (has_sole_expert(placement, rank))
        return num_ranks * num_tokens;
    int64_t num_rows = 0;
    const int64_t last_sum = num_ranks + num_tokens - 2;
    for (int64_t sum = 0; sum <= last_sum; sum++) {
        /* How many (source rank, token) have this sum. */
        const int64_t num_pairs = 1 + min(min(sum, last_sum - sum), min(num_ranks, num_tokens) - 1);
        if (can_come(placement, rank, sum))
            num_rows += num_pairs;
    }
    return num_rows;
}

static uint64_t hash_numbers(uint64_t hash, const int32_t *numbers, int32_t num_numbers)
{
    for (int32_t i = 0; i < num_numbers; i++) /* FNV-1a, by number */
        hash = (hash ^ (uint32_t)numbers[i]) * 0x100000001b3u;
    return hash;
}

uint64_t weft__placement_hash(const struct weft__placement *placement)
{
    const uint64_t hash = hash_numbers(0xcbf29ce484222325u, placement->expert_offsets,
                                       placement->host.num_experts + 1);
    return hash_numbers(hash, placement->entry_ranks, placement->num_entries);
}
