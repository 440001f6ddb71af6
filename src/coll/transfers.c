/* SPDX-License-Identifier: MIT */
/* Launches of sends and receives: lists of what goes between this rank and each other, in each
 * direction. */
#include <stdlib.h>
#include <string.h>

#include "coll/coll.h"
#include "coll/coll_internode.h"

enum { BLOCK_WARPS = 16 };

/* The transfers to be listed, and the lists. */
struct listing {
    weft_coll *coll;
    enum wp_transfer_operation operation;
    const struct weft__coll_transfer *given;
    int32_t num_given;
    int32_t *ends;                             /* [2 * ranks] of each key's in `sorted` */
    const struct weft__coll_transfer **sorted; /* by key, else as given */
    struct wp_transfer_list *lists;            /* [2 * ranks] */
    struct wp_transfer *transfers;             /* [num_given] */
    int32_t num_lists;
    int32_t num_transfers;
    int32_t num_sets; /* of slots in each direction, one for each list that is under way */
};

/* ---------------------------------------------------------------- memory */

static void listing_free(struct listing *listing)
{
    free(listing->ends);
    free(listing->sorted);
    free(listing->lists);
    free(listing->transfers);
}

static weft_result listing_allocate(struct listing *listing)
{
    const size_t num_keys = 2 * (size_t)listing->coll->comm->num_ranks;
    const size_t num_given = (size_t)listing->num_given;
    listing->ends = calloc(num_keys, sizeof *listing->ends);
    listing->sorted = calloc(num_given, sizeof *listing->sorted);
    listing->lists = calloc(num_keys, sizeof *listing->lists);
    listing->transfers = calloc(num_given, sizeof *listing->transfers);
    if (listing->ends == NULL || listing->sorted == NULL || listing->lists == NULL ||
        listing->transfers == NULL)
        return weft__no_memory("no memory for %d sends and receives", listing->num_given);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- order */

/* Not all to rank 0 first: what goes to the i-th rank after this one, then what comes from the i-th
 * before; 0 and 1 are of what the rank sends itself. */
static int32_t key_of(const weft_comm *comm, const struct weft__coll_transfer *transfer)
{
    const int32_t num_ranks = comm->num_ranks;
    const int is_sent = transfer->direction == WP_DIRECTION_SEND;
    const int32_t distance = is_sent ? transfer->peer - comm->rank : comm->rank - transfer->peer;
    return 2 * ((distance + num_ranks) % num_ranks) + !is_sent;
}

static void sort(struct listing *listing)
{
    const weft_comm *comm = listing->coll->comm;
    int32_t *ends = listing->ends, first = 0;
    for (int32_t i = 0; i < listing->num_given; i++)
        ends[key_of(comm, &listing->given[i])]++;
    for (int32_t key = 0; key < 2 * comm->num_ranks; key++) {
        const int32_t num = ends[key];
        ends[key] = first;
        first += num;
    }
    for (int32_t i = 0; i < listing->num_given; i++)
        listing->sorted[ends[key_of(comm, &listing->given[i])]++] = &listing->given[i];
}

static int32_t first_of(const struct listing *listing, int32_t key)
{
    return key == 0 ? 0 : listing->ends[key - 1];
}

static int32_t num_of(const struct listing *listing, int32_t key)
{
    return listing->ends[key] - first_of(listing, key);
}

/* That are in one direction. */
static int32_t most_lists(const struct listing *listing)
{
    int32_t num_lists[2] = {0, 0};
    for (int32_t key = 2; key < 2 * listing->coll->comm->num_ranks; key++)
        num_lists[key % 2] += num_of(listing, key) > 0;
    const int32_t most = num_lists[0] > num_lists[1] ? num_lists[0] : num_lists[1];
    return most > 0 ? most : 1;
}

/* ---------------------------------------------------------------- lists */

static void add_transfer(struct listing *listing, const struct weft__coll_transfer *transfer)
{
    const uint64_t operation = listing->operation;
    listing->transfers[listing->num_transfers++] = (struct wp_transfer){
        transfer->memory, (uint64_t)transfer->dtype << WP_TRANSFER_DTYPE_BIT |
                              operation << WP_TRANSFER_OPERATION_BIT | transfer->bytes};
}

static void add_list(struct listing *listing, int32_t peer, enum wp_direction direction,
                     int32_t first, int32_t set)
{
    listing->lists[listing->num_lists++] =
        (struct wp_transfer_list){.peer = peer,
                                  .first = first,
                                  .num = listing->num_transfers - first,
                                  .direction = (uint16_t)direction,
                                  .set = (uint16_t)(set % listing->num_sets)};
}

/* Transfers between this rank and others. */
static void list_peers(struct listing *listing)
{
    const int32_t num_keys = 2 * listing->coll->comm->num_ranks;
    int32_t num_listed[2] = {0, 0};
    for (int32_t key = 2; key < num_keys; key++) {
        const int32_t first = listing->num_transfers;
        if (num_of(listing, key) == 0)
            continue;
        const struct weft__coll_transfer *const *of_key = &listing->sorted[first_of(listing, key)];
        for (int32_t i = 0; i < num_of(listing, key); i++)
            add_transfer(listing, of_key[i]);
        add_list(listing, of_key[0]->peer, of_key[0]->direction, first, num_listed[key % 2]++);
    }
}

static weft_result check_pair(const weft_comm *comm, int32_t idx,
                              const struct weft__coll_transfer *sent,
                              const struct weft__coll_transfer *received)
{
    if (sent->bytes == received->bytes && sent->dtype == received->dtype)
        return WEFT_OK;
    return weft__invalid("count or dtype: what rank %d sends itself, number %d, is %llu bytes of "
                         "%s, what it receives %llu of %s",
                         comm->rank, idx, (unsigned long long)sent->bytes,
                         weft__constant_name(WEFT__ENUM_DTYPE, (int64_t)sent->dtype),
                         (unsigned long long)received->bytes,
                         weft__constant_name(WEFT__ENUM_DTYPE, (int64_t)received->dtype));
}

static weft_result check_num_pairs(const weft_comm *comm, int32_t num_sent, int32_t num_received)
{
    const int has_more_sent = num_sent > num_received;
    if (num_sent == num_received)
        return WEFT_OK;
    return weft__invalid("peer: the group has no %s number %d of rank %d to go with its %s itself",
                         has_more_sent ? "receive" : "send",
                         has_more_sent ? num_received : num_sent, comm->rank,
                         has_more_sent ? "send to" : "receive from");
}

/* Transfers of this rank to itself: each send, then its receive. */
static weft_result list_own_pairs(struct listing *listing)
{
    const weft_comm *comm = listing->coll->comm;
    const int32_t num_pairs = num_of(listing, 0);
    const int32_t first = listing->num_transfers;
    WEFT__TRY(check_num_pairs(comm, num_pairs, num_of(listing, 1)));
    for (int32_t i = 0; i < num_pairs; i++) {
        const struct weft__coll_transfer *const *pair = &listing->sorted[i];
        WEFT__TRY(check_pair(comm, i, pair[0], pair[num_pairs]));
        add_transfer(listing, pair[0]);
        add_transfer(listing, pair[num_pairs]);
    }
    if (num_pairs > 0)
        add_list(listing, comm->rank, WP_DIRECTION_SELF, first, 0);
    return WEFT_OK;
}

/* ---------------------------------------------------------------- tables */

static struct weft__coll_table *new_table(weft_coll *coll, uint64_t bytes, weft_result *result)
{
    struct weft__coll_table *table = calloc(1, sizeof *table);
    if (table == NULL) {
        *result = weft__no_memory("no memory for a group");
        return NULL;
    }
    *result = weft__machine_of(coll->comm)->alloc(coll->comm, bytes, &table->memory);
    if (*result != WEFT_OK) {
        free(table);
        return NULL;
    }
    table->bytes = bytes;
    table->next = coll->groups.tables;
    coll->groups.tables = table;
    return table;
}

static struct weft__coll_table *find_table(const weft_coll *coll, uint64_t bytes)
{
    struct weft__coll_table *table = coll->groups.tables;
    while (table != NULL && (atomic_load(&table->is_used) || table->bytes < bytes))
        table = table->next;
    return table;
}

/* One that no launch uses; NULL: *result says why there is none. */
static struct weft__coll_table *take_table(weft_coll *coll, uint64_t bytes, weft_result *result)
{
    struct weft__coll_table *table = find_table(coll, bytes);
    if (table == NULL)
        table = new_table(coll, bytes, result);
    if (table != NULL)
        atomic_store(&table->is_used, 1);
    return table;
}

static void give_back(void *argument)
{
    struct weft__coll_table *table = argument;
    atomic_store(&table->is_used, 0);
}

void weft__coll_tables_destroy(weft_coll *coll)
{
    while (coll->groups.tables != NULL) {
        struct weft__coll_table *table = coll->groups.tables;
        coll->groups.tables = table->next;
        weft__machine_of(coll->comm)->free(coll->comm, table->memory);
        free(table);
    }
}

static weft_result fill_table(weft_coll *coll, const struct listing *listing,
                              struct weft__coll_table *table, struct wp_send_receive_args *args)
{
    const struct weft__machine *machine = weft__machine_of(coll->comm);
    const uint64_t lists_bytes = (uint64_t)listing->num_lists * sizeof *listing->lists;
    char *transfers = (char *)table->memory + lists_bytes;
    args->table_of_lists = table->memory;
    args->table_of_transfers = (const struct wp_transfer *)(const void *)transfers;
    WEFT__TRY(machine->copy(coll->comm, table->memory, listing->lists, lists_bytes));
    return machine->copy(coll->comm, transfers, listing->transfers,
                         (uint64_t)listing->num_transfers * sizeof *listing->transfers);
}

/* ---------------------------------------------------------------- launches */

static weft_result launch_with_table(const struct listing *listing, weft_stream *stream,
                                     struct weft__grid grid, struct wp_send_receive_args *args)
{
    weft_coll *coll = listing->coll;
    const struct weft__machine *machine = weft__machine_of(coll->comm);
    weft_result result;
    struct weft__coll_table *table =
        take_table(coll,
                   (uint64_t)listing->num_lists * sizeof *listing->lists +
                       (uint64_t)listing->num_transfers * sizeof *listing->transfers,
                   &result);
    if (table == NULL)
        return result;
    result = fill_table(coll, listing, table, args);
    if (result == WEFT_OK)
        result = weft__exchange_launch(coll->exchange, stream, WP_PROGRAM_send_receive, grid, args,
                                       sizeof *args);
    if (result != WEFT_OK) {
        give_back(table);
        return result;
    }
    /* A graph has it until coll ends. */
    return machine->stream_is_capturing(stream) ? WEFT_OK
                                                : machine->stream_call(stream, give_back, table);
}

static weft_result launch(const struct listing *listing, weft_stream *stream,
                          struct weft__grid grid, struct wp_send_receive_args *args)
{
    weft_coll *coll = listing->coll;
    const struct weft__coll_groups *groups = &coll->groups;
    const uint64_t num_lines =
        (uint64_t)listing->num_sets * (uint64_t)args->grants.num_channels; /* of a direction */
    const uint64_t num_slots = groups->num_slots / num_lines;
    args->operation = listing->operation;
    args->num_lists = listing->num_lists;
    args->num_slots = num_slots < (uint64_t)groups->grants.max_slots ? (int32_t)num_slots
                                                                     : groups->grants.max_slots;
    if (listing->num_lists > WP_MAX_TRANSFER_LISTS || listing->num_transfers > WP_MAX_TRANSFERS)
        return launch_with_table(listing, stream, grid, args);
    memcpy(args->lists, listing->lists, (size_t)listing->num_lists * sizeof *listing->lists);
    memcpy(args->transfers, listing->transfers,
           (size_t)listing->num_transfers * sizeof *listing->transfers);
    /* In the order of the other operations of coll. */
    return weft__exchange_launch(coll->exchange, stream, WP_PROGRAM_send_receive, grid, args,
                                 sizeof *args);
}

/* ---------------------------------------------------------------- groups */

/* A warp for each channel of each list. Copy engines do not see at once what peers have stored. */
static struct weft__grid group_grid(int32_t num_lines)
{
    return (struct weft__grid){.num_blocks = (num_lines + BLOCK_WARPS - 1) / BLOCK_WARPS,
                               .num_warps = num_lines < BLOCK_WARPS ? num_lines : BLOCK_WARPS};
}

static weft_result list_group(struct listing *listing)
{
    WEFT__TRY(listing_allocate(listing));
    sort(listing);
    listing->num_sets = most_lists(listing);
    list_peers(listing);
    return list_own_pairs(listing);
}

weft_result weft__coll_groups_launch(weft_coll *coll)
{
    const struct weft__coll_groups *groups = &coll->groups;
    const struct weft__coll_group *group = &groups->group;
    struct listing listing = {.coll = coll,
                              .operation = WP_TRANSFERS_OF_A_GROUP,
                              .given = group->transfers,
                              .num_given = group->num_transfers};
    weft_result result = list_group(&listing);
    if (result == WEFT_OK) {
        const int32_t num_lines = listing.num_lists * groups->grants.num_channels;
        struct wp_send_receive_args args = {
            .exchange = groups->exchange->device, .grants = groups->grants, .num_warps = num_lines};
        result = launch(&listing, group->stream, group_grid(num_lines), &args);
    }
    listing_free(&listing);
    return result;
}

/* ---------------------------------------------------------------- rows of any length, of all
 * ranks */

/* So that a block has the warps of a pair of lists at least. */
static int32_t v_channels(const weft_coll *coll)
{
    const int32_t num_channels = coll->groups.grants.num_channels;
    const int32_t max_channels = weft__machine_of(coll->comm)->max_warps / 2;
    return num_channels < max_channels ? num_channels : max_channels;
}

/* Pairs of lists at a time: on cpu as many as hide what a network takes to answer. */
static struct weft__grid v_grid(const struct weft__coll_call *call)
{
    enum { PAIRS_WANTED = 8 };
    struct weft__grid grid = weft__coll_tensor_grid(call, WEFT__WORK_PUSH_TENSOR);
    const int32_t num_least = 2 * v_channels(call->coll);
    const int32_t num_wanted = call->coll->num_warps == 0 ? PAIRS_WANTED * num_least : num_least;
    grid.copied_row_bytes = 0;
    return weft__coll_widen_grid(call->coll, grid, num_wanted);
}

/* In each direction, in any order. */
static void fill_v(const struct weft__coll_call *call, const struct weft__coll_v_rows *rows,
                   struct weft__coll_transfer *transfers)
{
    const int32_t num_ranks = call->coll->comm->num_ranks;
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        transfers[rank] = (struct weft__coll_transfer){.direction = WP_DIRECTION_SEND,
                                                       .peer = rank,
                                                       .memory = (char *)(uintptr_t)call->send +
                                                                 rows->sent[rank].begin,
                                                       .bytes = rows->sent[rank].bytes,
                                                       .dtype = call->dtype};
        transfers[num_ranks + rank] =
            (struct weft__coll_transfer){.direction = WP_DIRECTION_RECEIVE,
                                         .peer = rank,
                                         .memory = call->recv + rows->received[rank].begin,
                                         .bytes = rows->received[rank].bytes,
                                         .dtype = call->dtype};
    }
}

static weft_result launch_v(const struct weft__coll_call *call, struct listing *listing)
{
    const weft_coll *coll = call->coll;
    const struct weft__grid grid = v_grid(call);
    const int32_t num_channels = v_channels(coll), num_peers = coll->comm->num_ranks - 1;
    const int32_t num_pairs = grid.num_blocks * grid.num_warps / (2 * num_channels);
    struct wp_send_receive_args args = {.exchange = coll->exchange->device,
                                        .rings = coll->internode->rings,
                                        .tree = coll->internode->tree.rings,
                                        .grants = coll->groups.grants};
    args.message.call.head.kind = (uint64_t)WP_OPERATION_ALL_TO_ALL_V << WP_CALL_OPERATION_BIT |
                                  (uint64_t)call->dtype << WP_CALL_DTYPE_BIT;
    args.message.num_blocks = grid.num_blocks;
    args.grants.num_channels = num_channels;
    WEFT__TRY(listing_allocate(listing));
    sort(listing);
    listing->num_sets = num_pairs < num_peers ? num_pairs : num_peers;
    args.num_warps = listing->num_sets * 2 * num_channels;
    list_peers(listing);
    WEFT__TRY(list_own_pairs(listing));
    weft__coll_note(call, WP_PROGRAM_send_receive);
    return launch(listing, call->stream, grid, &args);
}

weft_result weft__coll_groups_exchange_v(const struct weft__coll_call *call,
                                         const struct weft__coll_v_rows *rows)
{
    const int32_t num_given = 2 * call->coll->comm->num_ranks;
    struct weft__coll_transfer *given = calloc((size_t)num_given, sizeof *given);
    WEFT__CHECK_MEMORY(given, "no memory for %d rows", num_given);
    fill_v(call, rows, given);
    struct listing listing = {.coll = call->coll,
                              .operation = WP_TRANSFERS_OF_A_COLLECTIVE,
                              .given = given,
                              .num_given = num_given};
    const weft_result result = launch_v(call, &listing);
    listing_free(&listing);
    free(given);
    return result;
}
