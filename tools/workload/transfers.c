/* SPDX-License-Identifier: MIT */
#include "workload/transfers.h"

#include "workload/rng.h"

/* So that a group of all pieces has no more than WEFT_COLL_MAX_GROUP. */
static int32_t num_pieces(const struct transfers *transfers, int32_t from, int32_t to,
                          int64_t count)
{
    enum { MANY_RANKS = 16, MOST_PIECES = 3, MOST_AMONG_MANY = 2 };
    const uint64_t pair = (uint64_t)from * WEFT_COLL_MAX_RANKS + (uint64_t)to;
    const uint64_t draw = rng_key(transfers->key, pair);
    const uint64_t most = transfers->num_ranks > MANY_RANKS ? MOST_AMONG_MANY : MOST_PIECES;
    /* Nothing goes in no piece, or in empty ones. */
    return count == 0 && draw % 2 == 0 ? 0 : (int32_t)(1 + draw / 2 % most);
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

int32_t transfers_list(const struct transfers *transfers, struct transfer list[WEFT_COLL_MAX_GROUP])
{
    struct row rows[2 * WEFT_COLL_MAX_RANKS];
    struct rng rng = {rng_key(transfers->key, UINT64_MAX - (uint64_t)transfers->rank)};
    const int32_t num_rows = 2 * transfers->num_ranks;
    int32_t num = 0, num_left = 0;
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
    return num;
}
