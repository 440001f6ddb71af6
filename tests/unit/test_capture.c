/* SPDX-License-Identifier: MIT */
/* Operations recorded by a capture, on a machine that records launches as CUDA does and is the
 * host's else: right when they run after weft_coll_record_end, whatever memory they use. */
#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"
#include "recording.h"

enum { NUM_RANKS = 3, COUNT = 5000, NUM_REPLAYS = 50, STAGING_BYTES = 8192 };

/* ---------------------------------------------------------------- a rank */

struct recorder {
    struct ranks_context *context;
    weft_comm *comm;
    weft_coll *coll;
    weft_stream *stream;
    struct graph graph;
    float *in, *out, *gathered, *all; /* the last two: of all ranks */
};

static int open_recorder(struct recorder *self, struct ranks_context *context)
{
    static const weft_coll_choice choices[] = {
        {sizeof *choices, WEFT_ALL_REDUCE, WEFT_ALGORITHM_TWOSHOT},
        {sizeof *choices, WEFT_REDUCE_SCATTER, WEFT_ALGORITHM_ONESHOT_PULL},
        {sizeof *choices, WEFT_ALL_GATHER, WEFT_ALGORITHM_PUSH}};
    *self = (struct recorder){.context = context};
    self->comm = ranks_comm(context, NULL);
    use_recording_machine(self->comm);
    CHECK_OK(weft_coll_create(self->comm,
                              WEFT_ARGS(weft_coll_config, .staging_bytes = STAGING_BYTES,
                                        .choices = choices,
                                        .num_choices = sizeof choices / sizeof choices[0]),
                              &self->coll));
    self->stream = ranks_stream(context);
    self->stream->machine = &machine;
    self->in = calloc(COUNT, sizeof *self->in);
    self->out = calloc(COUNT, sizeof *self->out);
    self->gathered = calloc(NUM_RANKS * COUNT, sizeof *self->gathered);
    self->all = calloc(NUM_RANKS * COUNT, sizeof *self->all);
    return 0;
}

static int close_recorder(struct recorder *self)
{
    forget(&self->graph);
    free(self->in);
    free(self->out);
    free(self->gathered);
    free(self->all);
    return 0;
}

/* out = the sum of in; gathered = all ranks' out; out = the sum of all ranks' `all`, of this rank's
 * row. */
static int issue(struct recorder *self)
{
    CHECK_OK(weft_coll_all_reduce(self->coll,
                                  WEFT_ARGS(weft_coll_args, .send = self->in, .recv = self->out,
                                            .count = COUNT, .dtype = WEFT_FP32, .op = WEFT_SUM),
                                  self->stream));
    CHECK_OK(
        weft_coll_all_gather(self->coll,
                             WEFT_ARGS(weft_coll_args, .send = self->out, .recv = self->gathered,
                                       .count = COUNT, .dtype = WEFT_FP32),
                             self->stream));
    CHECK_OK(
        weft_coll_reduce_scatter(self->coll,
                                 WEFT_ARGS(weft_coll_args, .send = self->all, .recv = self->out,
                                           .count = COUNT, .dtype = WEFT_FP32, .op = WEFT_SUM),
                                 self->stream));
    return 0;
}

static int record(struct recorder *self)
{
    recorded = &self->graph;
    const int failed = issue(self);
    recorded = NULL;
    return failed;
}

static int run_graph(struct recorder *self, int round)
{
    struct ranks_context *context = self->context;
    const float scale = (float)(round + 1);
    for (int i = 0; i < COUNT; i++)
        self->in[i] = scale * (float)(i + context->rank);
    for (int i = 0; i < NUM_RANKS * COUNT; i++)
        self->all[i] = scale * (float)(i - context->rank);
    CHECK_OK(launch_recorded(self->stream, &self->graph));
    CHECK_OK(weft_stream_synchronize(self->stream));
    for (int i = 0; i < COUNT; i++) {
        const float reduced = scale * (float)(3 * i + 3);
        const float scattered = scale * (float)(3 * (context->rank * COUNT + i) - 3);
        CHECK(self->out[i] == scattered, "round %d: out[%d] is %g, not %g", round, i, self->out[i],
              scattered);
        for (int rank = 0; rank < NUM_RANKS; rank++)
            CHECK(self->gathered[rank * COUNT + i] == reduced,
                  "round %d: row %d, element %d is %g, not %g", round, rank, i,
                  self->gathered[rank * COUNT + i], reduced);
    }
    return 0;
}

static int run_many(struct recorder *self)
{
    for (int round = 0; round < NUM_REPLAYS; round++)
        if (run_graph(self, round))
            return 1;
    return 0;
}

static int count_copies(const struct graph *graph)
{
    int num_copies = 0;
    for (int i = 0; i < graph->num_launches; i++)
        num_copies += strcmp(graph->launches[i].program->name, "copy") == 0;
    return num_copies;
}

/* ---------------------------------------------------------------- what is right */

TEST_ON_RANKS(recorded_memory_is_reached_where_it_is, RANKS_THREADS, NUM_RANKS)
{
    struct recorder self;
    weft_coll_record *capture, *other;
    if (open_recorder(&self, context))
        return 1;
    for (int i = 0; i < 100; i++) { /* more windows than there are, if they were not closed */
        CHECK_OK(weft_coll_record_begin(self.coll, &capture));
        CHECK_ERROR(weft_coll_record_begin(self.coll, &other), WEFT_ERROR_INVALID_ARGUMENT, "coll");
        if (record(&self))
            return 1;
        CHECK(count_copies(&self.graph) == 0, "%d copies are recorded", count_copies(&self.graph));
        CHECK_OK(weft_coll_record_end(capture));
        CHECK_ERROR(weft_coll_record_end(capture), WEFT_ERROR_INVALID_ARGUMENT, "ended");
        if (i % 30 == 0 ? run_many(&self) : run_graph(&self, i))
            return 1;
        CHECK_OK(weft_coll_record_destroy(capture));
        forget(&self.graph);
    }
    return close_recorder(&self);
}

static weft_result find_no_block(weft_comm *comm, const void *ptr, uint64_t bytes,
                                 struct weft__block *block)
{
    (void)comm;
    (void)ptr;
    (void)bytes;
    (void)block;
    return weft__error(WEFT_ERROR_UNSUPPORTED, "memory of a pool");
}

/* With a capture, of memory that cannot be shared, and without one. */
TEST_IN_BOTH_MODES(other_memory_is_staged, NUM_RANKS)
{
    struct recorder self;
    weft_coll_record *capture;
    if (open_recorder(&self, context) || record(&self) || run_many(&self))
        return 1;
    const int num_copies = count_copies(&self.graph);
    CHECK(num_copies > 0, "memory that others cannot reach is not staged");
    forget(&self.graph);
    machine.find_block = find_no_block;
    CHECK_OK(weft_coll_record_begin(self.coll, &capture));
    if (record(&self))
        return 1;
    CHECK_OK(weft_coll_record_end(capture));
    CHECK(count_copies(&self.graph) == num_copies, "%d copies, not %d", count_copies(&self.graph),
          num_copies);
    if (run_many(&self))
        return 1;
    CHECK_OK(weft_coll_record_destroy(capture));
    return close_recorder(&self);
}

/* ---------------------------------------------------------------- what is not */

/* What `issue_more` adds on rank 1 differs. */
static int differ(struct recorder *self, int (*issue_more)(struct recorder *), const char *text)
{
    struct ranks_context *context = self->context;
    const weft_result mismatch = WEFT_ERROR_MISMATCH;
    weft_coll_record *capture;
    char who[32];
    snprintf(who, sizeof who, "rank %d", context->rank == 1 ? 0 : 1);
    CHECK_OK(weft_coll_record_begin(self->coll, &capture));
    recorded = &self->graph;
    if (issue(self) || issue_more(self))
        return 1;
    recorded = NULL;
    CHECK_ERROR(weft_coll_record_end(capture), mismatch, who);
    CHECK(strstr(weft_last_error(), text) != NULL, "\"%s\" lacks \"%s\"", weft_last_error(), text);
    CHECK_OK(weft_coll_record_destroy(capture));
    forget(&self->graph);
    return 0;
}

static int issue_one_more(struct recorder *self)
{
    return self->context->rank == 1 ? issue(self) : 0;
}

static int issue_another(struct recorder *self)
{
    const weft_reduce_op op = self->context->rank == 1 ? WEFT_MAX : WEFT_MIN;
    CHECK_OK(weft_coll_all_reduce(self->coll,
                                  WEFT_ARGS(weft_coll_args, .send = self->in, .recv = self->out,
                                            .count = 7, .dtype = WEFT_INT32, .op = op),
                                  self->stream));
    return 0;
}

TEST_ON_RANKS(ranks_that_recorded_different_operations_are_named, RANKS_THREADS, NUM_RANKS)
{
    struct recorder self;
    return open_recorder(&self, context) || differ(&self, issue_one_more, "different operations") ||
           differ(&self, issue_another, "op") || close_recorder(&self);
}

/* As if rank 2 could not map the memory of rank 0 from some window on. */
static _Thread_local int num_shared;

static weft_result share_some(weft_comm *comm, const struct weft__block *own,
                              struct weft__block *blocks)
{
    const weft_result result = weft__host_machine.share_block(comm, own, blocks);
    if (result == WEFT_OK && comm->rank == 2 && num_shared++ == 2) {
        weft__error(WEFT_ERROR_SYSTEM, "no more");
        blocks[0] = (struct weft__block){0};
    }
    return result;
}

TEST_ON_RANKS(memory_that_cannot_be_mapped_is_an_error, RANKS_THREADS, NUM_RANKS)
{
    struct recorder self;
    weft_coll_record *capture;
    if (open_recorder(&self, context))
        return 1;
    machine.share_block = share_some;
    num_shared = 0;
    CHECK_OK(weft_coll_record_begin(self.coll, &capture));
    if (record(&self))
        return 1;
    CHECK_ERROR(weft_coll_record_end(capture), WEFT_ERROR_UNSUPPORTED, "rank 2");
    CHECK(strstr(weft_last_error(), "no more") != NULL, "no reason: %s", weft_last_error());
    CHECK_OK(weft_coll_record_destroy(capture));
    forget(&self.graph);
    /* Nothing is left of it. */
    CHECK_OK(weft_coll_record_begin(self.coll, &capture));
    if (record(&self))
        return 1;
    CHECK_OK(weft_coll_record_end(capture));
    if (run_many(&self))
        return 1;
    CHECK_OK(weft_coll_record_destroy(capture));
    return close_recorder(&self);
}

int main(void)
{
    tests_need_one_mapping();
    return tests_run(NULL, NULL);
}
