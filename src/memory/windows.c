/* SPDX-License-Identifier: MIT */
#include "memory/windows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/host/log.h"
#include "programs/window.h"

/* ---------------------------------------------------------------- life */

/* The heaps come first; other windows are for collectives alone. */
static weft_result make_table(weft_comm *comm, struct weft__windows *windows)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    const uint64_t row_bytes = (uint64_t)comm->num_ranks * sizeof(char *);
    const uint64_t table_bytes = (uint64_t)windows->max_windows * row_bytes;
    WEFT__TRY(machine->alloc(comm, table_bytes, &windows->table));
    return machine->copy(comm, windows->table, weft__heap_bases(comm->heap), row_bytes);
}

/* The table is as long for many ranks as for so many. */
static int32_t max_windows(const weft_comm *comm)
{
    enum { MANY_RANKS = 32 };
    const int64_t most = weft__machine_of(comm)->max_windows;
    const int64_t num = comm->num_ranks <= MANY_RANKS ? most : most * MANY_RANKS / comm->num_ranks;
    return num < 1 ? 1 : (int32_t)num;
}

weft_result weft__windows_create(weft_comm *comm)
{
    struct weft__windows *windows = calloc(1, sizeof *windows);
    WEFT__CHECK_MEMORY(windows, "no memory for a communicator");
    comm->windows = windows;
    pthread_mutex_init(&windows->mutex, NULL);
    windows->max_windows = max_windows(comm);
    const size_t num_windows = (size_t)windows->max_windows;
    windows->own = calloc(num_windows, sizeof *windows->own);
    windows->blocks = calloc(num_windows * (size_t)comm->num_ranks, sizeof *windows->blocks);
    if (windows->own == NULL || windows->blocks == NULL)
        return weft__no_memory("no memory for a communicator");
    return make_table(comm, windows);
}

static struct weft__block *block_of(const weft_comm *comm, int32_t window, int32_t rank)
{
    return &comm->windows->blocks[(size_t)window * (size_t)comm->num_ranks + (size_t)rank];
}

/* Unmaps a block of another rank, if it is mapped here. */
static void close_block(weft_comm *comm, struct weft__block *block)
{
    if (block->base != NULL)
        weft__machine_of(comm)->close_block(comm, block);
    *block = (struct weft__block){0};
}

void weft__windows_destroy(weft_comm *comm)
{
    struct weft__windows *windows = comm->windows;
    if (windows == NULL)
        return;
    for (int32_t window = 0; windows->blocks != NULL && window < windows->max_windows; window++)
        for (int32_t rank = 0; rank < comm->num_ranks; rank++)
            close_block(comm, block_of(comm, window, rank));
    weft__machine_of(comm)->free(comm, windows->table);
    pthread_mutex_destroy(&windows->mutex);
    free(windows->blocks);
    free(windows->own);
    free(windows);
    comm->windows = NULL;
}

/* The same for all memory that something is true of: addresses are left out. */
static uint64_t hash_reason(const char *reason)
{
    static const uint64_t prime = UINT64_C(0x100000001b3);
    uint64_t hash = 0;
    while (*reason != '\0') {
        if (strncmp(reason, "0x", 2) == 0)
            reason += 2 + strspn(reason + 2, "0123456789abcdef");
        else
            hash = (hash ^ (unsigned char)*reason++) * prime;
    }
    return hash;
}

static int is_new(struct weft__windows *windows, const char *reason)
{
    const uint64_t hash = hash_reason(reason);
    int is_new = 1;
    pthread_mutex_lock(&windows->mutex);
    for (int32_t i = 0; i < windows->num_told; i++)
        is_new &= windows->told[i] != hash;
    is_new &= windows->num_told < WEFT__MAX_TOLD_REASONS;
    if (is_new)
        windows->told[windows->num_told++] = hash;
    pthread_mutex_unlock(&windows->mutex);
    return is_new;
}

void weft__windows_tell(weft_comm *comm, const char *reason)
{
    if (is_new(comm->windows, reason))
        weft__log(WEFT__LOG_WARN, comm->rank, "registered memory is staged by copies: %s", reason);
}

/* ---------------------------------------------------------------- numbers */

weft_result weft__window_reserve(weft_comm *comm, const void *ptr, uint64_t bytes, int32_t *window)
{
    struct weft__windows *windows = comm->windows;
    struct weft__block block;
    int32_t number = 1;
    WEFT__TRY(weft__machine_of(comm)->find_block(comm, ptr, bytes, &block));
    pthread_mutex_lock(&windows->mutex);
    while (number < windows->max_windows && windows->own[number].state != WEFT__WINDOW_FREE)
        number++;
    if (number < windows->max_windows)
        windows->own[number] = (struct weft__window){WEFT__WINDOW_RESERVED, block};
    pthread_mutex_unlock(&windows->mutex);
    if (number == windows->max_windows)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "all of the %d pieces that rank %d can have registered are in use",
                           windows->max_windows - 1, comm->rank);
    *window = number;
    return WEFT_OK;
}

static void set_state(weft_comm *comm, int32_t window, enum weft__window_state state)
{
    struct weft__windows *windows = comm->windows;
    if (window < 0)
        return;
    pthread_mutex_lock(&windows->mutex);
    windows->own[window].state = state;
    pthread_mutex_unlock(&windows->mutex);
}

void weft__window_release(weft_comm *comm, int32_t window)
{
    set_state(comm, window, WEFT__WINDOW_FREE);
}

int weft__window_contains(const weft_comm *comm, int32_t window, const void *ptr, uint64_t bytes,
                          uint64_t *place)
{
    const struct weft__block *block = &comm->windows->own[window].block;
    const uint64_t offset = (uintptr_t)ptr - (uintptr_t)block->base;
    if (offset > block->bytes || bytes > block->bytes - offset)
        return 0;
    *place = wp_place(window, offset);
    return 1;
}

/* ---------------------------------------------------------------- opening */

/* The ranks' work in one opening or closing. */
struct round {
    int32_t *numbers; /* [num_ranks] of each rank's window */
    struct weft__obstacle
        *verdicts;              /* [num_ranks] their own, or WEFT__NOBODY: they have mapped all */
    struct weft__block *blocks; /* [num_ranks] of each rank's window, as it is mapped here */
};

static weft_result start_round(weft_comm *comm, weft_result mine, int32_t window,
                               struct round *round)
{
    const size_t num_ranks = (size_t)comm->num_ranks;
    *round = (struct round){calloc(num_ranks, sizeof *round->numbers),
                            calloc(num_ranks, sizeof *round->verdicts),
                            calloc(num_ranks, sizeof *round->blocks)};
    if (mine == WEFT_OK &&
        (round->numbers == NULL || round->verdicts == NULL || round->blocks == NULL))
        mine = weft__no_memory("no memory for %d ranks", comm->num_ranks);
    return weft__comm_gather(comm, mine, &window, sizeof window, round->numbers);
}

static void end_round(struct round *round)
{
    free(round->numbers);
    free(round->verdicts);
    free(round->blocks);
}

static int32_t find_rank(const weft_comm *comm, const int32_t *values, int32_t value)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (values[rank] == value)
            return rank;
    }
    return WEFT__NOBODY;
}

static weft_result write_entry(weft_comm *comm, int32_t window, int32_t rank, const char *base)
{
    const size_t entry = (size_t)window * (size_t)comm->num_ranks + (size_t)rank;
    return weft__machine_of(comm)->copy(comm, (char **)comm->windows->table + entry, &base,
                                        sizeof base);
}

static weft_result write_entries(weft_comm *comm, const struct round *round)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (round->numbers[rank] < 0)
            continue;
        if (round->blocks[rank].base == NULL)
            return WEFT_ERROR_UNSUPPORTED; /* the machine has said why */
        WEFT__TRY(write_entry(comm, round->numbers[rank], rank, round->blocks[rank].base));
    }
    return WEFT_OK;
}

static weft_result map_all(weft_comm *comm, int32_t window, struct round *round)
{
    static const struct weft__block none = {0};
    WEFT__TRY(weft__machine_of(comm)->share_block(
        comm, window < 0 ? &none : &comm->windows->own[window].block, round->blocks));
    struct weft__obstacle own = {.rank = WEFT__NOBODY};
    if (write_entries(comm, round) != WEFT_OK) {
        own.rank = comm->rank;
        snprintf(own.reason, sizeof own.reason, "%s", weft__last_error());
    }
    return weft__comm_all_gather(comm, &own, sizeof own, round->verdicts);
}

/* The first, if there is one; whose it is tells it. */
static void find_obstacle(weft_comm *comm, const struct round *round,
                          struct weft__obstacle *obstacle)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (round->verdicts[rank].rank == WEFT__NOBODY)
            continue;
        *obstacle = round->verdicts[rank];
        if (rank == comm->rank) /* often all have one, which would be told by each */
            weft__windows_tell(comm, obstacle->reason);
        return;
    }
}

/* All have mapped all, or nobody keeps anything. */
static void conclude(weft_comm *comm, struct round *round, int32_t window, int all_mapped)
{
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (rank == comm->rank)
            continue;
        if (all_mapped && round->numbers[rank] >= 0)
            *block_of(comm, round->numbers[rank], rank) = round->blocks[rank];
        else
            close_block(comm, &round->blocks[rank]);
    }
    if (all_mapped)
        set_state(comm, window, WEFT__WINDOW_OPEN);
}

static weft_result open_round(weft_comm *comm, int32_t window, struct round *round,
                              struct weft__obstacle *obstacle)
{
    *obstacle =
        (struct weft__obstacle){.rank = find_rank(comm, round->numbers, WEFT__WINDOW_FAILED),
                                .reason = "it cannot give its memory"};
    int32_t num_windows = 0;
    for (int32_t rank = 0; rank < comm->num_ranks; rank++)
        num_windows += round->numbers[rank] >= 0;
    if (obstacle->rank != WEFT__NOBODY || num_windows == 0)
        return WEFT_OK;
    const weft_result result = map_all(comm, window, round);
    if (result == WEFT_OK)
        find_obstacle(comm, round, obstacle);
    conclude(comm, round, window, result == WEFT_OK && obstacle->rank == WEFT__NOBODY);
    return result;
}

weft_result weft__window_open(weft_comm *comm, weft_result mine, int32_t window,
                              struct weft__obstacle *obstacle)
{
    struct round round;
    weft_result result = start_round(comm, mine, window, &round);
    if (result == WEFT_OK)
        result = open_round(comm, window, &round, obstacle);
    end_round(&round);
    return result;
}

static weft_result close_round(weft_comm *comm, int32_t window, const struct round *round)
{
    const int32_t failed_rank = find_rank(comm, round->numbers, WEFT__WINDOW_FAILED);
    if (failed_rank != WEFT__NOBODY)
        return weft__error(WEFT_ERROR_MISMATCH, "rank %d gave a ptr that it has not registered",
                           failed_rank);
    for (int32_t rank = 0; rank < comm->num_ranks; rank++) {
        if (rank != comm->rank && round->numbers[rank] >= 0)
            close_block(comm, block_of(comm, round->numbers[rank], rank));
    }
    WEFT__TRY(weft__comm_all_gather(comm, NULL, 0, NULL));
    weft__window_release(comm, window);
    return WEFT_OK;
}

weft_result weft__window_close(weft_comm *comm, int32_t window)
{
    struct round round;
    weft_result result = start_round(comm, WEFT_OK, window, &round);
    if (result == WEFT_OK)
        result = close_round(comm, window, &round);
    end_round(&round);
    return result;
}
