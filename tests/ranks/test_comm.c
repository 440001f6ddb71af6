/* SPDX-License-Identifier: MIT */
/* Communicators between threads and between processes: meeting, teams, splits, host collectives. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { MAX_RANKS = 9 };
#define run_host(num_ranks, function) assert_int_equal(ranks_run_host(num_ranks, function), 0)

enum { BLOB_PERIOD = 256 };

/* Every rank's blob is a function of rank, round and place, and repeats itself. */
static unsigned char blob_byte(int32_t rank, int round, size_t byte)
{
    return (unsigned char)(rank * 31 + round * 7 + (int)(byte % BLOB_PERIOD));
}

/* Compares all but the first period with what is one before: one call, where sanitizers would look
 * at every byte of a loop. */
static bool is_blob(const unsigned char *bytes, size_t num_bytes, int32_t rank, int round)
{
    for (size_t byte = 0; byte < num_bytes && byte < BLOB_PERIOD; byte++)
        if (bytes[byte] != blob_byte(rank, round, byte))
            return false;
    return num_bytes <= BLOB_PERIOD ||
           memcmp(bytes, bytes + BLOB_PERIOD, num_bytes - BLOB_PERIOD) == 0;
}

static int check_gather(weft_comm *comm, int round, size_t bytes)
{
    int32_t rank = weft_comm_rank(comm), num_ranks = weft_comm_num_ranks(comm);
    unsigned char *send = malloc(bytes + 1), *recv = malloc((size_t)num_ranks * bytes + 1);
    for (size_t byte = 0; byte < bytes; byte++)
        send[byte] = blob_byte(rank, round, byte);
    weft_result result = weft_comm_host_all_gather(comm, send, bytes, recv);
    int32_t num_wrong = 0;
    for (int32_t other = 0; result == WEFT_OK && other < num_ranks; other++)
        num_wrong += !is_blob(recv + (size_t)other * bytes, bytes, other, round);
    free(send);
    free(recv);
    CHECK_OK(result);
    CHECK(num_wrong == 0, "%d blobs are wrong", num_wrong);
    return 0;
}

/* ---------------------------------------------------------------- meeting */

static int meet_and_gather(struct ranks_context *context)
{
    static const size_t sizes[] = {1, 0, 8, 4097, 100000};
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK(weft_comm_rank(comm) == context->rank, "%d", weft_comm_rank(comm));
    CHECK(weft_comm_num_ranks(comm) == context->num_ranks, "%d", weft_comm_num_ranks(comm));
    for (int round = 0; round < 25; round++)
        if (check_gather(comm, round, sizes[round % 5]) != 0)
            return 1;
    int32_t failed_rank = 99;
    CHECK_OK(weft_comm_status(comm, &failed_rank));
    CHECK(failed_rank == -1, "failed_rank is %d", failed_rank);
    CHECK_OK(weft_comm_host_barrier(comm));
    return 0;
}

TEST(ranks_meet_and_gather)
{
    for (int32_t num_ranks = 1; num_ranks <= tests_rounds(MAX_RANKS, 5);
         num_ranks += tests_rounds(1, 4))
        run_host(num_ranks, meet_and_gather);
}

TEST(the_rendezvous_may_live_in_rank_0)
{
    const struct ranks_options options = {
        .mode = RANKS_PROCESSES, .id = RANKS_ID_BY_RANK_0, .num_ranks = 5};
    assert_int_equal(ranks_run_with(&options, meet_and_gather), 0);
}

TEST_ON_HOST(blobs_may_have_a_mebibyte, 4)
{
    const size_t limit = 1 << 20;
    weft_comm *const comm = ranks_comm(context, NULL);
    if (check_gather(comm, 3, limit) != 0)
        return 1;
    CHECK_ERROR(weft_comm_host_all_gather(comm, comm, limit + 1, comm), WEFT_ERROR_INVALID_ARGUMENT,
                "1048577");
    if (check_gather(comm, 4, 5) != 0)
        return 1;
    return 0;
}

/* The id is used again, by the same ranks in another order. */
TEST_ON_HOST(an_id_serves_one_communicator_after_another, 4)
{
    weft_comm *comm;
    for (int round = 0; round < tests_rounds(20, 4); round++) {
        int32_t rank = (context->rank + round) % context->num_ranks;
        CHECK_OK(weft_comm_create(&context->id, rank, context->num_ranks, NULL, &comm));
        if (check_gather(comm, round, 100) != 0)
            return 1;
        ranks_barrier(context);
        CHECK_OK(weft_comm_destroy(comm));
        ranks_barrier(context);
    }
    return 0;
}

static int meet_twice(struct ranks_context *context)
{
    weft_comm *comms[2];
    weft_unique_id *second = context->shared;
    if (context->rank == 0)
        CHECK_OK(weft_unique_id_create(second));
    ranks_barrier(context);
    int32_t mirrored = context->num_ranks - 1 - context->rank;
    CHECK_OK(ranks_comm_create(context, NULL, &comms[0]));
    CHECK_OK(weft_comm_create(second, mirrored, context->num_ranks, NULL, &comms[1]));
    for (int round = 0; round < 20; round++)
        if (check_gather(comms[round % 2], round, 64) != 0)
            return 1;
    /* One goes on when the other is gone. */
    CHECK_OK(weft_comm_destroy(comms[0]));
    if (check_gather(comms[1], 1, 64) != 0)
        return 1;
    ranks_barrier(context);
    CHECK_OK(weft_comm_destroy(comms[1]));
    ranks_barrier(context); /* rank 0's process serves the second */
    return 0;
}

TEST(two_communicators_at_once)
{
    struct ranks_options options = {
        .mode = RANKS_THREADS, .num_ranks = 4, .shared_bytes = sizeof(weft_unique_id)};
    assert_int_equal(ranks_run_with(&options, meet_twice), 0);
    options.mode = RANKS_PROCESSES;
    assert_int_equal(ranks_run_with(&options, meet_twice), 0);
}

/* ---------------------------------------------------------------- teams and splits */

static int check_team(weft_comm *comm, weft_team team, weft_team_info expected)
{
    weft_team_info info = WEFT_INIT(weft_team_info);
    CHECK_OK(weft_team_query(comm, team, &info));
    CHECK(info.num_ranks == expected.num_ranks && info.rank_idx == expected.rank_idx &&
              info.num_teams == expected.num_teams && info.team_idx == expected.team_idx,
          "team %d is %d %d %d %d", team, info.num_ranks, info.rank_idx, info.num_teams,
          info.team_idx);
    CHECK(weft_team_world_rank(comm, team, info.rank_idx) == weft_comm_rank(comm), "team %d", team);
    CHECK(weft_team_world_rank(comm, team, info.num_ranks) == -1, "team %d", team);
    return 0;
}

static int see_teams(struct ranks_context *context)
{
    enum { NUM_NODES = 3 };
    weft_comm *comm;
    int32_t rank = context->rank, num_ranks = context->num_ranks, node_size = num_ranks / NUM_NODES;
    CHECK_OK(weft_comm_create(&context->id, rank, num_ranks,
                              WEFT_ARGS(weft_comm_config, .num_nodes = NUM_NODES), &comm));
    int32_t node = rank / node_size, local = rank % node_size;
    if (check_team(comm, WEFT_TEAM_WORLD, (weft_team_info){0, num_ranks, rank, 1, 0}) ||
        check_team(comm, WEFT_TEAM_LOCAL, (weft_team_info){0, node_size, local, NUM_NODES, node}) ||
        check_team(comm, WEFT_TEAM_RAIL, (weft_team_info){0, NUM_NODES, node, node_size, local}))
        return 1;
    for (int32_t other = 0; other < num_ranks; other++)
        CHECK(weft_comm_node(comm, other) == other / node_size, "rank %d", other);
    CHECK(weft_comm_node(comm, num_ranks) == -1, "a node of no rank");
    CHECK(weft_comm_node(comm, -1) == -1, "a node of no rank");
    /* A split keeps the nodes: here the second rank of every node and the others. */
    weft_comm *child;
    int is_second = local == 1;
    CHECK_OK(weft_comm_split(comm, is_second, 0, NULL, &child));
    weft_team_info local_team = {.num_ranks = is_second ? 1 : node_size - 1,
                                 .rank_idx = is_second || local == 0 ? 0 : local - 1,
                                 .num_teams = NUM_NODES,
                                 .team_idx = node};
    if (check_team(child, WEFT_TEAM_LOCAL, local_team) != 0)
        return 1;
    CHECK_OK(weft_comm_destroy(child));
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST(teams_of_virtual_nodes)
{
    for (int32_t num_ranks = 6; num_ranks <= tests_rounds(9, 6); num_ranks += 3)
        run_host(num_ranks, see_teams);
}

static int split_into_colors(struct ranks_context *context)
{
    weft_comm *comm, *child, *none = (weft_comm *)context;
    int32_t rank = context->rank, num_ranks = context->num_ranks;
    CHECK_OK(weft_comm_create(&context->id, rank, num_ranks, NULL, &comm));
    for (int round = 0; round < 6; round++) {
        int32_t num_colors = 1 + round % 3, color = rank % num_colors;
        int32_t num_members = (num_ranks - color + num_colors - 1) / num_colors;
        /* Descending keys turn the order round; equal keys keep it. */
        int32_t key = round % 2 ? -rank : 5;
        int32_t place = round % 2 ? num_members - 1 - rank / num_colors : rank / num_colors;
        CHECK_OK(weft_comm_split(comm, color, key, NULL, &child));
        CHECK(weft_comm_num_ranks(child) == num_members, "%d members of color %d",
              weft_comm_num_ranks(child), color);
        CHECK(weft_comm_rank(child) == place, "place %d", weft_comm_rank(child));
        if (check_gather(child, round, 33) || check_gather(comm, round, 5))
            return 1;
        CHECK_OK(weft_comm_destroy(child));
    }
    int32_t color = rank == 0 ? -1 : 0;
    CHECK_OK(weft_comm_split(comm, color, 0, NULL, &none));
    CHECK((none == NULL) == (rank == 0), "color -1 gets a communicator");
    if (none != NULL)
        CHECK_OK(weft_comm_destroy(none));
    CHECK_ERROR(weft_comm_split(comm, -2, 0, NULL, &none), WEFT_ERROR_INVALID_ARGUMENT,
                "color is -2");
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST(splits_form_new_communicators)
{
    for (int32_t num_ranks = 1; num_ranks <= tests_rounds(MAX_RANKS, 5);
         num_ranks += tests_rounds(2, 4))
        run_host(num_ranks, split_into_colors);
}

/* Excluded ranks take no part, and the parent goes on. */
TEST_ON_HOST(shrunk_communicators, 6)
{
    const int32_t excluded[] = {2, 0}, twice[] = {2, 2}, self[] = {context->rank};
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    weft_comm *comm, *child, *children[3];
    config.num_nodes = 2; /* so the child has a node of one rank, and one of two */
    CHECK_OK(weft_comm_create(&context->id, context->rank, context->num_ranks, &config, &comm));
    const int is_excluded = context->rank == 0 || context->rank == 2;
    for (int round = 0; round < 3 && !is_excluded; round++) { /* all live at once */
        CHECK_OK(weft_comm_shrink(comm, excluded, 2, NULL, &children[round]));
        child = children[round];
        CHECK(weft_comm_num_ranks(child) == context->num_ranks - 2, "%d ranks",
              weft_comm_num_ranks(child));
        for (int32_t rank = 0; rank < context->num_ranks - 2; rank++) {
            const int32_t parent_rank = rank == 0 ? 1 : rank + 2;
            CHECK(weft_comm_parent_rank(child, rank) == parent_rank, "rank %d was %d", rank,
                  weft_comm_parent_rank(child, rank));
            CHECK(weft_comm_node(child, rank) == (parent_rank >= context->num_ranks / 2),
                  "rank %d is on node %d", rank, weft_comm_node(child, rank));
        }
        if (check_gather(child, round, 33))
            return 1;
    }
    for (int round = 0; round < 3 && !is_excluded; round++)
        CHECK_OK(weft_comm_destroy(children[round]));
    CHECK_ERROR(weft_comm_shrink(comm, twice, 2, NULL, &child), WEFT_ERROR_INVALID_ARGUMENT,
                context->rank == 2 ? "excluded[0] is 2, which is the caller"
                                   : "excluded[1] is 2, which is there twice");
    CHECK_ERROR(weft_comm_shrink(comm, self, 1, NULL, &child), WEFT_ERROR_INVALID_ARGUMENT,
                "which is the caller");
    CHECK_ERROR(weft_comm_shrink(comm, NULL, 1, NULL, &child), WEFT_ERROR_INVALID_ARGUMENT,
                "excluded is NULL");
    CHECK_ERROR(weft_comm_shrink(comm, excluded, context->num_ranks, NULL, &child),
                WEFT_ERROR_INVALID_ARGUMENT, "num_excluded is 6, allowed are 0..5");
    if (check_gather(comm, 0, 5))
        return 1;
    CHECK_OK(weft_comm_shrink(comm, NULL, 0, NULL, &child));
    CHECK_OK(weft_comm_destroy(comm));
    if (check_gather(child, 9, 5))
        return 1;
    CHECK_OK(weft_comm_destroy(child));
    return 0;
}

/* Children outlive their parent, and split again. */
TEST_ON_HOST(children_outlive_their_parents, tests_rounds(8, 4))
{
    weft_comm *comm, *child;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    while (weft_comm_num_ranks(comm) > 1) {
        int32_t upper = weft_comm_rank(comm) >= weft_comm_num_ranks(comm) / 2;
        CHECK_OK(weft_comm_split(comm, upper, 0, NULL, &child));
        CHECK_OK(weft_comm_destroy(comm));
        comm = child;
        if (check_gather(comm, 1, 9) != 0)
            return 1;
    }
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}
