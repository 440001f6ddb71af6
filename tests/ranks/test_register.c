/* SPDX-License-Identifier: MIT */
/* Registered memory: reached where it is between ranks of one process, staged between others, with
 * the same results. */
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/stock.h"
#include "oracle/coll_call.h"
#include "oracle/coll_rank.h"
#include "workload/rng.h"

enum { NUM_RANKS = 3, ALL_RANKS = (1 << NUM_RANKS) - 1 };

/* Whether ranks can access each other's memory: only on cpu, and only in threads. */
static int is_reachable(const struct ranks_context *context)
{
    const enum ranks_mode *mode = context->argument;
    return *mode == RANKS_THREADS && !tests_on_cuda();
}

/* ---------------------------------------------------------------- every operation */

/* With the arrays registered by the ranks of a mask. */
static int check_case(struct coll_rank *self, const struct coll_case *spec, int setup,
                      uint32_t mask)
{
    struct ep_rank *base = &self->base;
    struct ranks_context *context = base->context;
    const int takes_part = (int)(mask >> context->rank & 1);
    struct coll_call call;
    int32_t is_direct = -1;
    if (coll_call_create(base, spec, &call))
        return 1;
    struct ep_array *arrays[] = {&call.send, &call.recv};
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_memory_register(base->comm, takes_part ? arrays[i]->block : NULL,
                                      takes_part ? arrays[i]->block_bytes : 0, &is_direct));
    CHECK(is_direct == (mask == 0 || is_reachable(context)), "is_direct is %d", is_direct);
    CHECK_OK(coll_call_issue(&call, context->rank, self->colls[setup], base->stream));
    CHECK_OK(weft_stream_synchronize(base->stream));
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_memory_unregister(base->comm, takes_part ? arrays[i]->block : NULL));
    return coll_call_verify(base, &call, self->setups[setup].name);
}

/* Staged data of any operation fits the staging buffers: a rank that must send it piece by piece
 * must not meet one that need not. */
static struct coll_case random_case(struct rng *rng, enum coll_operation operation)
{
    enum { MAX_COUNT = 600 };
    const weft_dtype dtype = (weft_dtype)(1 + rng_below(rng, WEFT_FP8_E4M3));
    const weft_reduce_op op = (weft_reduce_op)rng_below(rng, WEFT_AVG + 1);
    struct coll_case spec = coll_case_random(rng_next(rng), NUM_RANKS, operation, dtype, op,
                                             1 + rng_below(rng, MAX_COUNT));
    spec.send_place = COLL_ELSEWHERE;
    spec.recv_place = COLL_ELSEWHERE;
    return spec;
}

TEST_IN_BOTH_MODES(every_operation_with_some_ranks_registered, NUM_RANKS)
{
    const int num_rounds = tests_rounds(tests_grid_size(4, 1), 1);
    struct rng rng = {1};
    struct coll_rank self;
    if (coll_rank_open(&self, context))
        return 1;
    for (int i = 0; i < num_rounds * COLL_NUM_OPERATIONS * COLL_NUM_SETUPS; i++) {
        const enum coll_operation operation = (enum coll_operation)(i % COLL_NUM_OPERATIONS);
        const int setup = i / COLL_NUM_OPERATIONS % COLL_NUM_SETUPS;
        struct coll_case spec = random_case(&rng, operation);
        const uint32_t mask = i % 3 == 0 ? ALL_RANKS : rng_below(&rng, ALL_RANKS + 1);
        coll_setup_order(&self.setups[setup], &spec);
        if (coll_setup_fits(&self.setups[setup], &spec) && check_case(&self, &spec, setup, mask))
            return 1;
    }
    return coll_rank_close(&self);
}

/* ---------------------------------------------------------------- direct or staged */

/* Only memory that is reached directly can receive rows of any length beyond the staging buffer: by
 * that it shows which memory is. */
enum { STAGING_BYTES = 4096, ROW_BYTES = 6000, ARRAY_BYTES = NUM_RANKS * ROW_BYTES };

struct prober {
    struct ranks_context *context;
    weft_comm *comm;
    weft_coll *coll;
    weft_stream *stream;
    char *memory; /* twice ARRAY_BYTES, and more around */
    uint64_t round;
};

enum { MEMORY_BYTES = 3 * ARRAY_BYTES };

static unsigned char byte_of(uint64_t round, int32_t from, int32_t to, int i)
{
    return (unsigned char)(round * 31 + (uint64_t)(from * 7 + to * 3 + i));
}

static int open_prober(struct prober *prober, struct ranks_context *context)
{
    void *memory;
    *prober = (struct prober){.context = context};
    prober->comm = ranks_comm(context, NULL);
    CHECK_OK(weft_coll_create(
        prober->comm, WEFT_ARGS(weft_coll_config, .staging_bytes = STAGING_BYTES), &prober->coll));
    prober->stream = ranks_stream(context);
    CHECK_OK(weft_memory_alloc(prober->comm, MEMORY_BYTES, &memory));
    prober->memory = memory;
    return 0;
}

static weft_result exchange(const struct prober *prober, const char *send, char *recv)
{
    int64_t counts[NUM_RANKS], offsets[NUM_RANKS];
    weft_coll_all_to_all_v_args args = WEFT_INIT(weft_coll_all_to_all_v_args);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        counts[rank] = ROW_BYTES;
        offsets[rank] = (int64_t)rank * ROW_BYTES;
    }
    args.send = send;
    args.recv = recv;
    args.dtype = WEFT_UINT8;
    args.send_counts = args.recv_counts = counts;
    args.send_offsets = args.recv_offsets = offsets;
    return weft_coll_all_to_all_v(prober->coll, &args, prober->stream);
}

static int fill(struct prober *prober, char *send)
{
    unsigned char bytes[ARRAY_BYTES];
    for (int i = 0; i < ARRAY_BYTES; i++)
        bytes[i] = byte_of(prober->round, prober->context->rank, i / ROW_BYTES, i % ROW_BYTES);
    CHECK_OK(weft_memory_copy(prober->comm, send, bytes, sizeof bytes));
    return 0;
}

static int compare(struct prober *prober, const char *recv)
{
    unsigned char bytes[ARRAY_BYTES];
    CHECK_OK(weft_memory_copy(prober->comm, bytes, recv, sizeof bytes));
    for (int i = 0; i < ARRAY_BYTES; i++) {
        const unsigned char expected =
            byte_of(prober->round, i / ROW_BYTES, prober->context->rank, i % ROW_BYTES);
        CHECK(bytes[i] == expected, "byte %d is %d, not %d", i, bytes[i], expected);
    }
    return 0;
}

static int expect_direct(struct prober *prober, char *send, char *recv)
{
    prober->round++;
    if (fill(prober, send))
        return 1;
    CHECK_OK(exchange(prober, send, recv));
    CHECK_OK(weft_stream_synchronize(prober->stream));
    return compare(prober, recv);
}

static int expect_staged(const struct prober *prober, const char *send, char *recv)
{
    CHECK_ERROR(exchange(prober, send, recv), WEFT_ERROR_UNSUPPORTED, "staging_bytes");
    return 0;
}

/* What weft_memory_is_direct says of `bytes` at ptr, and of their last one. */
static int check_is_direct(const struct prober *prober, const char *ptr, uint64_t bytes,
                           int32_t expected)
{
    CHECK(weft_memory_is_direct(prober->comm, ptr, bytes) == expected &&
              weft_memory_is_direct(prober->comm, ptr + bytes - 1, 1) == expected,
          "%llu bytes: weft_memory_is_direct is %d", (unsigned long long)bytes,
          weft_memory_is_direct(prober->comm, ptr, bytes));
    CHECK(weft_memory_is_direct(prober->comm, NULL, 0) == 1 &&
              weft_memory_is_direct(prober->comm, NULL, 1) == 0 &&
              weft_memory_is_direct(NULL, ptr, bytes) == -1,
          "weft_memory_is_direct of NULL");
    return 0;
}

/* Any part of what is registered, while it is. */
TEST_IN_BOTH_MODES(any_part_while_it_is_registered, NUM_RANKS)
{
    struct prober prober;
    int32_t is_direct = -1;
    if (open_prober(&prober, context) ||
        expect_staged(&prober, prober.memory, prober.memory + ARRAY_BYTES))
        return 1;
    char *registered = prober.memory + 5 + context->rank;
    CHECK_OK(weft_memory_register(prober.comm, registered, ARRAY_BYTES + 100, &is_direct));
    CHECK(is_direct == is_reachable(context), "is_direct is %d", is_direct);
    if (check_is_direct(&prober, registered, ARRAY_BYTES + 100, is_direct) ||
        check_is_direct(&prober, registered - 1, 1, 0) ||
        check_is_direct(&prober, registered + ARRAY_BYTES + 100, 1, 0))
        return 1;
    CHECK(weft_memory_is_direct(prober.comm, registered - 1, 2) == 0, "partly registered");
    char *send = prober.memory + ARRAY_BYTES + 200;
    for (int i = 0; i <= 100; i += 25) {
        char *recv = registered + i;
        if (is_direct ? expect_direct(&prober, send, recv) : expect_staged(&prober, send, recv))
            return 1;
    }
    if (expect_staged(&prober, send, registered - 1) ||
        expect_staged(&prober, send, registered + 101))
        return 1;
    CHECK_OK(weft_memory_unregister(prober.comm, registered));
    return check_is_direct(&prober, registered, ARRAY_BYTES, 0) ||
           expect_staged(&prober, send, registered);
}

TEST_IN_BOTH_MODES(the_heap_may_be_registered_too, NUM_RANKS)
{
    struct prober prober;
    void *block;
    int32_t is_direct = -1;
    if (open_prober(&prober, context))
        return 1;
    CHECK_OK(weft_heap_alloc(prober.comm, ARRAY_BYTES, &block));
    if (check_is_direct(&prober, block, ARRAY_BYTES, 1))
        return 1;
    CHECK_OK(weft_memory_register(prober.comm, block, ARRAY_BYTES, &is_direct));
    CHECK(is_direct == 1, "memory of the heap needs no registration");
    CHECK_OK(weft_memory_unregister(prober.comm, block));
    if (expect_direct(&prober, prober.memory, block))
        return 1;
    CHECK_OK(weft_heap_free(prober.comm, block));
    return 0;
}

/* ---------------------------------------------------------------- life */

/* Two pieces, which odd ranks give back in the other order; rank 0 has only one of them. */
static int register_and_unregister(struct prober *prober)
{
    struct ranks_context *context = prober->context;
    char *pieces[] = {context->rank == 0 ? NULL : prober->memory, prober->memory + ARRAY_BYTES};
    const size_t num_bytes[] = {context->rank == 0 ? 0 : 100, (size_t)ARRAY_BYTES};
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_memory_register(prober->comm, pieces[i], num_bytes[i], NULL));
    for (int i = 0; i < 2; i++)
        CHECK_OK(weft_memory_unregister(prober->comm, pieces[(i + context->rank) % 2]));
    return 0;
}

/* In turn: ranks that are threads would count what the others open for counting. */
static int take_stock(struct prober *prober, struct stock *stock)
{
    for (int32_t turn = 0; turn < NUM_RANKS; turn++) {
        CHECK_OK(weft_comm_host_barrier(prober->comm));
        if (turn == prober->context->rank)
            *stock = stock_take();
    }
    CHECK_OK(weft_comm_host_barrier(prober->comm));
    return 0;
}

static int cycle_many(struct prober *prober)
{
    const int num_cycles = tests_rounds(1000, 200);
    struct stock before = {.num_fds = 0}, after = {.num_fds = 0};
    if (take_stock(prober, &before))
        return 1;
    for (int i = 0; i < num_cycles; i++)
        if (register_and_unregister(prober))
            return 1;
    return take_stock(prober, &after) || stock_check(before, after);
}

TEST_IN_BOTH_MODES(nothing_is_left_by_a_thousand_cycles, NUM_RANKS)
{
    struct prober prober;
    int32_t is_direct = -1;
    if (open_prober(&prober, context) || register_and_unregister(&prober) || cycle_many(&prober))
        return 1;
    CHECK_OK(weft_memory_register(prober.comm, prober.memory, MEMORY_BYTES, &is_direct));
    CHECK(is_direct == is_reachable(context), "is_direct is %d", is_direct);
    /* What is still registered goes with the communicator. */
    return is_direct && expect_direct(&prober, prober.memory + 3, prober.memory + ARRAY_BYTES + 64);
}

/* There is an end to how much can be registered, after which memory is staged. */
TEST_IN_BOTH_MODES(what_is_too_much_is_staged, NUM_RANKS)
{
    enum { FAR_TOO_MANY = 2000 };
    struct prober prober;
    int32_t is_direct = 1;
    int num_pieces = 0;
    if (open_prober(&prober, context))
        return 1;
    while (is_direct && num_pieces < FAR_TOO_MANY)
        CHECK_OK(weft_memory_register(prober.comm, prober.memory + num_pieces++, 100, &is_direct));
    CHECK(is_direct == 0, "%d pieces are registered", num_pieces);
    CHECK(num_pieces > 32 || !is_reachable(context), "only %d pieces", num_pieces);
    while (num_pieces-- > 0)
        CHECK_OK(weft_memory_unregister(prober.comm, prober.memory + num_pieces));
    CHECK_OK(weft_memory_register(prober.comm, prober.memory, MEMORY_BYTES, &is_direct));
    CHECK(is_direct == is_reachable(context), "is_direct is %d", is_direct);
    return is_direct && expect_direct(&prober, prober.memory, prober.memory + ARRAY_BYTES);
}

/* ---------------------------------------------------------------- errors */

TEST_IN_BOTH_MODES(wrong_pointers_are_named, NUM_RANKS)
{
    struct prober prober;
    if (open_prober(&prober, context))
        return 1;
    char *memory = prober.memory;
    CHECK_OK(weft_memory_register(prober.comm, memory, 100, NULL));
    if (context->rank == 1)
        CHECK_ERROR(weft_memory_unregister(prober.comm, memory + 1), WEFT_ERROR_INVALID_ARGUMENT,
                    "ptr is");
    else
        CHECK_ERROR(weft_memory_unregister(prober.comm, memory), WEFT_ERROR_MISMATCH, "rank 1");
    CHECK_OK(weft_memory_unregister(prober.comm, memory)); /* nothing has changed */
    CHECK_OK(weft_memory_unregister(prober.comm, NULL));
    CHECK_ERROR(weft_memory_unregister(prober.comm, memory), WEFT_ERROR_INVALID_ARGUMENT, "ptr is");
    return 0;
}

TEST_IN_BOTH_MODES(after_a_failure_all_can_be_destroyed, NUM_RANKS)
{
    struct prober prober;
    if (open_prober(&prober, context))
        return 1;
    CHECK_OK(weft_memory_register(prober.comm, prober.memory, MEMORY_BYTES, NULL));
    if (context->rank == 0)
        CHECK_OK(weft_comm_abort(prober.comm));
    CHECK_ERROR(weft_memory_register(prober.comm, prober.memory, 100, NULL), WEFT_ERROR_ABORTED,
                "rank 0");
    CHECK_ERROR(weft_memory_unregister(prober.comm, prober.memory), WEFT_ERROR_ABORTED, "rank 0");
    return 0;
}

/* ---------------------------------------------------------------- reasons */

enum { EVERYBODY = -1 };

static int register_of(struct ranks_context *context, weft_comm *comm, int32_t giver)
{
    char memory[64];
    char *given = giver == context->rank || giver == EVERYBODY ? memory : NULL;
    int32_t is_direct = 1;
    CHECK_OK(weft_memory_register(comm, given, given != NULL ? sizeof memory : 0, &is_direct));
    CHECK(is_direct == 0, "memory of another process is direct");
    CHECK_OK(weft_memory_unregister(comm, given));
    return 0;
}

static int count_lines(FILE *file, const char *text)
{
    char line[1024];
    int num_lines = 0;
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL)
        num_lines += strstr(line, text) != NULL;
    return num_lines;
}

/* Each alone, or all at once (EVERYBODY), twice. */
static int register_in_turns(struct ranks_context *context, weft_comm *comm)
{
    for (int i = 0; i < 2 * (NUM_RANKS + 1); i++) {
        const int32_t giver = i % (NUM_RANKS + 1);
        if (register_of(context, comm, giver < NUM_RANKS ? giver : EVERYBODY))
            return 1;
    }
    return 0;
}

/* Whose memory some rank could not reach, in how many lines of all ranks' standard error. */
static int tell_reasons(struct ranks_context *context)
{
    weft_comm *const comm = ranks_comm(context, NULL);
    FILE *told = tmpfile();
    const int own_stderr = dup(STDERR_FILENO);
    CHECK(told != NULL && own_stderr >= 0, "no file");
    dup2(fileno(told), STDERR_FILENO);
    const int failed = register_in_turns(context, comm);
    dup2(own_stderr, STDERR_FILENO);
    close(own_stderr);
    int32_t num_lines = count_lines(told, "staged by copies"), all[NUM_RANKS], sum = 0;
    fclose(told);
    if (failed)
        return 1;
    CHECK_OK(weft_comm_host_all_gather(comm, &num_lines, sizeof num_lines, all));
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        sum += all[rank];
    /* Rank 0 cannot reach what rank 1 and rank 2 give, rank 1 not what rank 0 gives. */
    CHECK(all[0] == 2 && all[1] == 1 && sum == NUM_RANKS, "%d lines, %d by rank 0", sum, all[0]);
    return 0;
}

TEST(each_reason_is_told_once)
{
    if (tests_on_cuda())
        skip(); /* memory of the host is no memory of a device: there is one reason */
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, tell_reasons, NULL), 0);
}

int main(void)
{
    tests_need_one_mapping();
    tests_choose_machine();
    return tests_run(NULL, NULL);
}
