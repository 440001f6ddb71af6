/* SPDX-License-Identifier: MIT */
#include "workload/transfers.h"

#include <stdlib.h>

#include "workload/rng.h"

static int32_t num_pieces(const struct transfers *transfers, int32_t from, int32_t to,
                          int64_t count)
{
    const uint64_t pair = (uint64_t)from * (uint64_t)transfers->num_ranks + (uint64_t)to;
    const uint64_t draw = rng_key(transfers->key, pair);
    /* Nothing goes in no piece, or in empty ones. */
    return count == 0 && draw % 2 == 0 ? 0 : (int32_t)(1 + draw / 2 % TRANSFERS_MOST_PIECES);
}

/* The pieces of one peer in one direction. */
struct row {
    int is_sent;
    int32_t peer;
    int64_t begin, count;
    int32_t num_pieces, num_listed;
};

static struct row row_of(const struct transfers *transfers, int32_t idx)
{
    const int is_sent = idx < transfers->num_ranks;
    const int32_t peer = idx % transfers->num_ranks, rank = transfers->rank;
    const struct transfer_rows *rows = is_sent ? &transfers->sent : &transfers->received;
    return (struct row){
        is_sent,
        peer,
        rows->offsets[peer],
        rows->counts[peer],
        num_pieces(transfers, is_sent ? rank : peer, is_sent ? peer : rank, rows->counts[peer]),
        0};
}

static struct transfer next_piece(struct row *row)
{
    const int64_t begin = row->count * row->num_listed / row->num_pieces;
    const int64_t end = row->count * ++row->num_listed / row->num_pieces;
    return (struct transfer){row->is_sent, row->peer, row->begin + begin, end - begin};
}

int32_t transfers_list(const struct transfers *transfers, struct transfer *list)
{
    const int32_t num_rows = 2 * transfers->num_ranks;
    struct row *rows = calloc((size_t)num_rows, sizeof *rows);
    struct rng rng = {rng_key(transfers->key, UINT64_MAX - (uint64_t)transfers->rank)};
    int32_t num = 0, num_left = 0;
    if (rows == NULL)
        return -1;
    for (int32_t i = 0; i < num_rows; i++) {
        rows[i] = row_of(transfers, i);
        num_left += rows[i].num_pieces;
    }
    for (; num_left > 0; num_left--) {
        int32_t i = (int32_t)rng_below(&rng, (uint32_t)num_rows);
        while (rows[i].num_listed == rows[i].num_pieces)
            i = (i + 1) % num_rows;
        list[num++] = next_piece(&rows[i]);
    }
    free(rows);
    return num;
}
