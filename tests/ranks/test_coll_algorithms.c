/* SPDX-License-Identifier: MIT */
/* Which algorithm does an operation: pinned ones, what they refuse, and the library's choice. */
#include "harness/cmocka.h"
#include "oracle/coll_call.h"
#include "workload/collective.h"
#include "workload/elements.h"

enum { NUM_RANKS = 3, PACKET_BYTES = 16 << 10, NUM_SIZES = 40 };

static weft_coll_config config_of(weft_algorithm algorithm,
                                  weft_coll_choice choices[NUM_COLLECTIVES])
{
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    config.packet_bytes = PACKET_BYTES;
    for (int i = 0; i < NUM_COLLECTIVES; i++)
        choices[i] = (weft_coll_choice){sizeof(weft_coll_choice), (weft_collective)i, algorithm};
    config.choices = choices;
    config.num_choices = NUM_COLLECTIVES;
    return config;
}

static int check_refused(struct ep_rank *self, weft_coll *coll, const struct coll_case *spec,
                         weft_algorithm algorithm)
{
    struct coll_call call;
    if (coll_call_create(self, spec, &call))
        return 1;
    CHECK_ERROR(coll_call_issue(&call, self->context->rank, coll, self->stream),
                WEFT_ERROR_UNSUPPORTED, weft_coll_algorithm_name(algorithm));
    return coll_call_destroy(self, &call);
}

static int close_coll(struct ep_rank *self, weft_coll *coll)
{
    /* Heap memory goes back: nobody may still be reading it. */
    CHECK_OK(weft_comm_host_barrier(self->comm));
    CHECK_OK(weft_coll_destroy(coll));
    return 0;
}

/* What it cannot do is refused, on all ranks alike, and what it can do works afterwards. */
static int check_pinned(struct ep_rank *self, weft_algorithm algorithm)
{
    weft_coll_choice choices[NUM_COLLECTIVES];
    const weft_coll_config config = config_of(algorithm, choices);
    weft_coll *coll;
    CHECK_OK(weft_coll_create(self->comm, &config, &coll));
    for (int operation = 0; operation < COLL_GROUP; operation++) {
        const weft_collective collective = coll_collective((enum coll_operation)operation);
        struct coll_case spec =
            coll_case_random(1, NUM_RANKS, (enum coll_operation)operation, WEFT_FP16, WEFT_SUM, 25);
        spec.order = elements_order_of(algorithm);
        if (!collective_is_served(collective, algorithm)) {
            if (check_refused(self, coll, &spec, algorithm))
                return 1;
            continue;
        }
        CHECK(weft_coll_algorithm(coll, collective, coll_row_bytes(&spec)) == algorithm,
              "%s was pinned", weft_coll_algorithm_name(algorithm));
        if (coll_check(self, coll, &spec, weft_coll_algorithm_name(algorithm)))
            return 1;
    }
    return close_coll(self, coll);
}

TEST_ON_RANKS(pinned, RANKS_THREADS, NUM_RANKS)
{
    struct ep_rank self;
    if (ep_rank_open(&self, context, 0, 1 << 20))
        return 1;
    for (int algorithm = 1; algorithm < NUM_ALGORITHMS; algorithm++)
        if (check_pinned(&self, (weft_algorithm)algorithm))
            return 1;
    return ep_rank_close(&self);
}

/* Packets hold packet_bytes, and not a byte more. */
TEST_ON_RANKS(too_large_for_packets, RANKS_THREADS, NUM_RANKS)
{
    weft_coll_choice choices[NUM_COLLECTIVES];
    const weft_coll_config config = config_of(WEFT_ALGORITHM_ONESHOT, choices);
    struct ep_rank self;
    weft_coll *coll;
    if (ep_rank_open(&self, context, 0, 1 << 20))
        return 1;
    CHECK_OK(weft_coll_create(self.comm, &config, &coll));
    for (int operation = 0; operation < COLL_ALL_TO_ALL_V; operation++) {
        struct coll_case spec = coll_case_random(2, NUM_RANKS, (enum coll_operation)operation,
                                                 WEFT_UINT8, WEFT_SUM, PACKET_BYTES + 1);
        if (check_refused(&self, coll, &spec, WEFT_ALGORITHM_ONESHOT))
            return 1;
        spec.count--;
        if (coll_check(&self, coll, &spec, "oneshot"))
            return 1;
    }
    return close_coll(&self, coll) || ep_rank_close(&self);
}

struct choice {
    weft_algorithm of[NUM_COLLECTIVES][NUM_SIZES];
};

/* An algorithm that can do it, for every size, and the same on all ranks. */
TEST_ON_RANKS(chosen, RANKS_THREADS, NUM_RANKS)
{
    struct choice own, all[NUM_RANKS];
    struct ep_rank self;
    weft_coll *coll;
    if (ep_rank_open(&self, context, 0, 1 << 16))
        return 1;
    CHECK_OK(weft_coll_create(self.comm, NULL, &coll));
    for (int i = 0; i < NUM_COLLECTIVES; i++)
        for (int size = 0; size < NUM_SIZES; size++) {
            own.of[i][size] = weft_coll_algorithm(coll, (weft_collective)i, 1ull << size);
            CHECK(own.of[i][size] != WEFT_ALGORITHM_AUTO &&
                      collective_is_served((weft_collective)i, own.of[i][size]),
                  "collective %d of 2^%d bytes by %s", i, size,
                  weft_coll_algorithm_name(own.of[i][size]));
        }
    CHECK_OK(weft_comm_host_all_gather(self.comm, &own, sizeof own, all));
    for (int rank = 0; rank < NUM_RANKS; rank++)
        CHECK(memcmp(&own, &all[rank], sizeof own) == 0, "rank %d chooses other algorithms", rank);
    return close_coll(&self, coll) || ep_rank_close(&self);
}

TEST(names)
{
    assert_string_equal(weft_coll_algorithm_name(WEFT_ALGORITHM_ONESHOT), "oneshot");
    for (int a = 0; a < NUM_ALGORITHMS; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(weft_coll_algorithm_name((weft_algorithm)a),
                                    weft_coll_algorithm_name((weft_algorithm)b));
    assert_non_null(weft_coll_algorithm_name((weft_algorithm)-1));
    assert_non_null(weft_coll_algorithm_name((weft_algorithm)NUM_ALGORITHMS));
}
