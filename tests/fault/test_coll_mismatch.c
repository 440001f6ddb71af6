/* SPDX-License-Identifier: MIT */
/* Ranks whose collective calls do not fit together are all told so, with a rank, and nobody hangs:
 * by packets, by direct access, and where one rank's call is by packets and another's is not. */
#include <ctype.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/coll_call.h"

enum { NUM_RANKS = 3, ODD_ONE = 1, PACKET_BYTES = 4096, STAGING_BYTES = 8192 };
enum { SMALL = 100, LARGE = 5000 }; /* elements of 4 bytes: by packets, and not */

/* What the odd rank does differently. */
struct difference {
    const char *fields; /* of which the message must name one; separated by | */
    const char *values; /* which it must name too, all of them */
    void (*change)(struct coll_case *spec);
    uint32_t operations; /* bit for each that can differ so */
};

/* What the odd one does otherwise. */
#define CHANGE(name, statement)                                                                    \
    static void name(struct coll_case *spec)                                                       \
    {                                                                                              \
        statement;                                                                                 \
    }

CHANGE(change_count, spec->count--)
CHANGE(change_size_class, spec->count = spec->count == SMALL ? LARGE : SMALL)
CHANGE(change_dtype, spec->dtype = WEFT_INT32)
CHANGE(change_op, spec->op = WEFT_MAX)
CHANGE(premultiply, spec->factor = COLL_FACTOR_GIVEN)
CHANGE(change_root, spec->root = 2)
CHANGE(change_operation,
       spec->operation = spec->operation == COLL_BROADCAST ? COLL_ALL_REDUCE : COLL_BROADCAST)
CHANGE(change_place, spec->send_place = spec->recv_place = COLL_ELSEWHERE)

struct plan {
    struct coll_case spec;
    struct difference difference;
};

struct names {
    int num_all, num_named;
};

/* How many names of a list, which are separated by |, a message has. */
static struct names count_named(const char *message, const char *list)
{
    struct names names = {0, 0};
    while (*list != '\0') {
        char name[32];
        const size_t length = strcspn(list, "|");
        snprintf(name, sizeof name, "%.*s", (int)length, list);
        names.num_all++;
        names.num_named += strstr(message, name) != NULL;
        list += length + (list[length] == '|');
    }
    return names;
}

/* The message must name a rank, a field and the values. */
static int check_message(const struct difference *difference)
{
    const char *message = weft_last_error();
    const char *named = strstr(message, "rank ");
    const struct names values = count_named(message, difference->values);
    CHECK(named != NULL && isdigit((unsigned char)named[5]), "no rank: %s", message);
    CHECK(count_named(message, difference->fields).num_named > 0, "no \"%s\": %s",
          difference->fields, message);
    CHECK(values.num_named == values.num_all, "no \"%s\": %s", difference->values, message);
    return 0;
}

static int disagree(struct ranks_context *context)
{
    const struct plan *plan = context->argument;
    struct coll_case spec = plan->spec;
    struct coll_call call;
    struct ep_rank self;
    weft_coll *coll;
    if (ep_rank_open_with(&self, context,
                          WEFT_ARGS(weft_comm_config, .timeout_ms = tests_deadline_ms(2000)),
                          1 << 20))
        return 1;
    CHECK_OK(weft_coll_create(
        self.comm,
        WEFT_ARGS(weft_coll_config, .packet_bytes = PACKET_BYTES, .staging_bytes = STAGING_BYTES),
        &coll));
    if (coll_check(&self, coll, &spec, "before"))
        return 1;
    CHECK_OK(weft_comm_host_barrier(self.comm)); /* else a slow rank is told in that call */
    if (context->rank == ODD_ONE)
        plan->difference.change(&spec);
    if (coll_call_create(&self, &spec, &call))
        return 1;
    weft_result result = coll_call_issue(&call, context->rank, coll, self.stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(self.stream);
    CHECK(result == WEFT_ERROR_MISMATCH, "\"%s\": %s", weft_result_string(result),
          weft_last_error());
    if (check_message(&plan->difference))
        return 1;
    /* An error of the call can come before those of what it has enqueued already. */
    (void)weft_stream_synchronize(self.stream);
    if (coll_call_destroy(&self, &call))
        return 1;
    CHECK_OK(weft_coll_destroy(coll));
    return ep_rank_close(&self);
}

/* A rank sees only its own counts. So that all see a difference, every pair of ranks with the odd
 * one must have one, which some seeds give. */
static int all_pairs_differ(const struct plan *plan)
{
    struct coll_case changed = plan->spec;
    plan->difference.change(&changed);
    const struct coll_rows sent = coll_rows_of(&plan->spec, COLLECTIVE_SEND, ODD_ONE);
    const struct coll_rows received = coll_rows_of(&plan->spec, COLLECTIVE_RECV, ODD_ONE);
    const struct coll_rows changed_sent = coll_rows_of(&changed, COLLECTIVE_SEND, ODD_ONE);
    const struct coll_rows changed_received = coll_rows_of(&changed, COLLECTIVE_RECV, ODD_ONE);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        if (sent.counts[rank] == changed_sent.counts[rank] ||
            received.counts[rank] == changed_received.counts[rank])
            return 0;
    return 1;
}

/* Returns how many ranks failed. */
static int run(const struct difference *difference, enum coll_operation operation, uint64_t count)
{
    struct plan plan = {.spec =
                            coll_case_random(0, NUM_RANKS, operation, WEFT_FP32, WEFT_SUM, count),
                        .difference = *difference};
    plan.spec.root = 0;
    plan.spec.factor = COLL_NO_FACTOR;
    plan.spec.form = COLL_OUT_OF_PLACE;
    plan.spec.send_place = plan.spec.recv_place = COLL_IN_HEAP;
    const int must_differ = operation == COLL_ALL_TO_ALL_V && difference->change == change_count;
    while (must_differ && !all_pairs_differ(&plan))
        plan.spec.seed++;
    const enum ranks_mode mode = count == SMALL ? RANKS_PROCESSES : RANKS_THREADS;
    const int num_failed = ranks_run(mode, NUM_RANKS, disagree, &plan);
    if (num_failed != 0)
        print_error("%s of %llu elements differs in %s\n", coll_operation_name(operation),
                    (unsigned long long)count, difference->fields);
    return num_failed;
}

#define BIT(operation) (1u << COLL_##operation)

TEST(every_difference)
{
    const uint32_t all = (1u << COLL_GROUP) - 1; /* of a group only those find out who receive */
    const uint32_t reductions = BIT(ALL_REDUCE) | BIT(REDUCE_SCATTER) | BIT(REDUCE);
    const uint32_t rooted = BIT(BROADCAST) | BIT(REDUCE) | BIT(GATHER) | BIT(SCATTER);
    const struct difference differences[] = {
        {"count|bytes", "", change_count, all},
        {"dtype", "WEFT_INT32 on rank 1|WEFT_FP32 on rank ", change_dtype, all},
        {"op", "WEFT_SUM on rank |WEFT_MAX on rank 1", change_op, reductions},
        {"op", "WEFT_SUM on rank |WEFT_PREMUL_SUM on rank 1", premultiply, reductions},
        {"root", "2 on rank 1", change_root, rooted},
        {"operation", "broadcast on rank ", change_operation, all & ~BIT(ALL_TO_ALL_V)},
    };
    int num_failed = 0;
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        for (int operation = 0; operation < COLL_GROUP; operation++)
            if (differences[i].operations >> operation & 1)
                num_failed += run(&differences[i], (enum coll_operation)operation, SMALL) +
                              run(&differences[i], (enum coll_operation)operation, LARGE);
    assert_int_equal(num_failed, 0);
}

/* One is by packets, the others are not. */
TEST(other_size_class)
{
    const struct difference difference = {"count", "100 on rank |5000 on rank ", change_size_class,
                                          0};
    const int num_failed =
        run(&difference, COLL_ALL_REDUCE, SMALL) + run(&difference, COLL_ALL_REDUCE, LARGE) +
        run(&difference, COLL_ALL_GATHER, SMALL) + run(&difference, COLL_BROADCAST, LARGE);
    assert_int_equal(num_failed, 0);
}

/* More than can be staged at once, on one rank only. */
TEST(other_place)
{
    const struct difference difference = {"staged in pieces", "yes on rank 1", change_place, 0};
    int num_failed = 0;
    for (int operation = 0; operation < COLL_ALL_TO_ALL_V; operation++)
        num_failed += run(&difference, (enum coll_operation)operation, LARGE);
    assert_int_equal(num_failed, 0);
}

/* ---------------------------------------------------------------- create */

static int create_differently(struct ranks_context *context)
{
    const int *which = context->argument;
    weft_coll_config config = WEFT_INIT(weft_coll_config);
    weft_comm *comm;
    weft_coll *coll;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    if (context->rank == ODD_ONE && *which == 0)
        config.packet_bytes = PACKET_BYTES;
    if (context->rank == ODD_ONE && *which == 1)
        config.staging_bytes = PACKET_BYTES;
    config.choices =
        WEFT_ARGS(weft_coll_choice, .collective = WEFT_BROADCAST, .algorithm = WEFT_ALGORITHM_PUSH);
    if (context->rank == ODD_ONE && *which == 2)
        config.num_choices = 1;
    if (context->rank == ODD_ONE && *which == 3)
        config.num_blocks = 3;
    /* By its name: memory whose size follows from it differs, too. */
    static const char *const fields[] = {"packet_bytes", "staging_bytes", "the algorithm of",
                                         "num_blocks"};
    CHECK_ERROR(weft_coll_create(comm, &config, &coll), WEFT_ERROR_MISMATCH, fields[*which]);
    CHECK_OK(weft_comm_destroy(comm));
    return 0;
}

TEST(configs)
{
    for (int which = 0; which < 4; which++)
        assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, create_differently, &which), 0);
}
