/* SPDX-License-Identifier: MIT */
/* Ranks whose calls do not fit together are told so, with a rank and the field, instead of hanging
 * or moving rows to wrong places; a call that is wrong on its own fails before anything is sent. */
#include <stdlib.h>
#include <string.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "oracle/ep_operation.h"

/* The odd one is in the first of two nodes, if there are two. */
enum {
    NUM_RANKS = 3,
    MAX_RANKS = 4,
    ODD_ONE = 1,
    NUM_TOKENS = 4,
    NUM_TOPK = 2,
    NUM_EXPERTS = 6,
    HIDDEN = 8
};

/* One rank's arguments, all the same at first: a disagreement changes those of the odd one. */
struct call {
    weft_ep_config ep;
    weft_ep_handle_config handle;
    weft_ep_dispatch_args dispatch;
    weft_ep_combine_args combine;
    weft_plane planes[2];
    enum ep_operation operation;
    void *heap; /* enough for all outputs */
    struct ep_array topk_idx, wide_topk_idx, rows;
};

struct disagreement {
    const char *field; /* that the message must name */
    enum ep_operation operation;
    void (*change)(struct call *call);
};

static void fill_call(struct call *call)
{
    call->ep = (weft_ep_config)WEFT_INIT(weft_ep_config);
    call->ep.num_experts = NUM_EXPERTS;
    call->ep.max_topk = NUM_TOPK + 1;
    call->handle = (weft_ep_handle_config)WEFT_INIT(weft_ep_handle_config);
    call->handle.max_tokens = NUM_TOKENS;
    call->handle.num_topk = NUM_TOPK;
    for (int plane = 0; plane < 2; plane++)
        call->planes[plane] = (weft_plane){.size = sizeof(weft_plane),
                                           .src = call->rows.data,
                                           .dst = (char *)call->heap + 4096 * plane,
                                           .row_bytes = HIDDEN * sizeof(float)};
    call->dispatch = (weft_ep_dispatch_args)WEFT_INIT(weft_ep_dispatch_args);
    call->dispatch.num_planes = 1;
    call->dispatch.planes = call->planes;
    call->dispatch.capacity = MAX_RANKS * NUM_TOKENS;
    call->combine = (weft_ep_combine_args)WEFT_INIT(weft_ep_combine_args);
    call->combine.dtype = WEFT_FP32;
    call->combine.hidden = HIDDEN;
    call->combine.capacity = MAX_RANKS * NUM_TOKENS;
    call->combine.x = call->heap;
    call->combine.out = call->rows.data;
}

static int32_t other_offsets[NUM_EXPERTS + 1] = {0, 1, 2, 3, 4, 5, 6};
static int32_t other_ranks[NUM_EXPERTS] = {2, 2, 1, 1, 0, 0};

/* What the odd one does otherwise. */
#define CHANGE(name, statement)                                                                    \
    static void name(struct call *call)                                                            \
    {                                                                                              \
        statement;                                                                                 \
    }

CHANGE(change_num_experts, call->ep.num_experts++)
CHANGE(change_max_topk, call->ep.max_topk++)

static void change_placement(struct call *call)
{
    call->ep.expert_offsets = other_offsets;
    call->ep.expert_ranks = other_ranks;
}

CHANGE(change_rings, call->ep.num_staging_slots++)
CHANGE(change_max_tokens, call->handle.max_tokens++)
CHANGE(change_experts_of_handle, call->handle.num_experts = NUM_EXPERTS - 1)
CHANGE(change_num_topk, call->handle.num_topk++)
CHANGE(change_row_bytes, call->planes[0].row_bytes -= 4)

static void change_quantisation(struct call *call)
{
    call->planes[0].dtype = WEFT_FP32;
    call->planes[0].quantisation.dtype = WEFT_FP8_E4M3;
    call->planes[0].scales = call->planes[1].dst;
}

CHANGE(change_num_planes, call->dispatch.num_planes = 2)

static void add_topk_idx(struct call *call)
{
    call->dispatch.index_type = WEFT_INT32;
    call->dispatch.topk_idx = call->topk_idx.data;
    call->dispatch.recv_topk_idx = (char *)call->heap + 8192;
}

CHANGE(change_dtype, call->combine.dtype = WEFT_BF16)
CHANGE(change_hidden, call->combine.hidden = 2 * HIDDEN)

static void add_combine_weights(struct call *call)
{
    call->combine.topk_weights = (const float *)(void *)((char *)call->heap + 8192);
    call->combine.out_topk_weights = (float *)call->rows.data + NUM_TOKENS * HIDDEN;
}

CHANGE(call_notify, call->operation = EP_NOTIFY)
CHANGE(call_combine, call->operation = EP_COMBINE)

static weft_result issue(const struct call *call, weft_ep_handle *handle, weft_stream *stream)
{
    if (call->operation == EP_DISPATCH)
        return weft_ep_dispatch(handle, &call->dispatch, stream);
    if (call->operation == EP_COMBINE)
        return weft_ep_combine(handle, &call->combine, stream);
    return weft_ep_notify(handle, stream);
}

static weft_result lay_out(const struct call *call, weft_ep_handle *handle, weft_stream *stream)
{
    return weft_ep_layout(handle,
                          WEFT_ARGS(weft_ep_layout_args, .num_tokens = NUM_TOKENS,
                                    .index_type = WEFT_INT32, .topk_idx = call->topk_idx.data),
                          stream);
}

/* Layout, notify and the operation, up to the first error. */
static weft_result run_layer(struct ep_rank *self, const struct call *call)
{
    weft_result result = lay_out(call, self->handle, self->stream);
    if (result == WEFT_OK)
        result = weft_ep_notify(self->handle, self->stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(self->stream);
    if (result == WEFT_OK)
        result = issue(call, self->handle, self->stream);
    /* Also after an error: a combine between nodes may have been enqueued in part. */
    const weft_result waited = weft_stream_synchronize(self->stream);
    return result != WEFT_OK ? result : waited;
}

static int32_t num_nodes_of(const struct ranks_context *context)
{
    const int32_t *num_nodes = context->argument;
    return num_nodes != NULL ? *num_nodes : 1;
}

static int check_mismatch(const char *field, weft_result result)
{
    const char *message = weft_last_error();
    char text[32];
    snprintf(text, sizeof text, "rank %d", ODD_ONE);
    CHECK(result == WEFT_ERROR_MISMATCH, "\"%s\": %s", weft_result_string(result), message);
    CHECK(strstr(message, text) != NULL, "no %s: %s", text, message);
    CHECK(strstr(message, field) != NULL, "no \"%s\": %s", field, message);
    return 0;
}

static int fill_topk_idx(struct ep_rank *self, struct call *call)
{
    const uint64_t num_choices = NUM_TOKENS * WEFT_MAX_TOPK;
    if (ep_array_alloc(self, &call->topk_idx, EP_INPUT, num_choices * 4, 0) ||
        ep_array_alloc(self, &call->wide_topk_idx, EP_INPUT, num_choices * 8, 0))
        return 1;
    int32_t *topk_idx = call->topk_idx.host;
    int64_t *wide_topk_idx = call->wide_topk_idx.host;
    for (uint64_t i = 0; i < num_choices; i++)
        wide_topk_idx[i] = topk_idx[i] = (int32_t)(i % NUM_EXPERTS);
    return ep_array_push(self, &call->topk_idx) || ep_array_push(self, &call->wide_topk_idx);
}

static int open_rank(struct ep_rank *self, struct ranks_context *context, struct call *call)
{
    const uint64_t rows_bytes = NUM_TOKENS * 2 * HIDDEN * sizeof(float);
    *call = (struct call){.operation = EP_NOTIFY};
    if (ep_rank_open(self, context, num_nodes_of(context), 1 << 16) || fill_topk_idx(self, call) ||
        ep_array_alloc(self, &call->rows, EP_OWN, rows_bytes, 0))
        return 1;
    CHECK_OK(weft_arena_alloc(self->arena, 1 << 15, &call->heap));
    fill_call(call);
    return 0;
}

static int close_rank(struct ep_rank *self, struct call *call)
{
    return ep_array_free(self, &call->topk_idx) || ep_array_free(self, &call->wide_topk_idx) ||
           ep_array_check_and_free(self, &call->rows, "rows") || ep_rank_close(self);
}

static int disagree(struct ranks_context *context, const struct disagreement *disagreement)
{
    struct ep_rank self;
    struct call call;
    if (open_rank(&self, context, &call))
        return 1;
    call.operation = disagreement->operation;
    if (context->rank == ODD_ONE)
        disagreement->change(&call);
    weft_result result = weft_ep_create(self.comm, &call.ep, &self.ep);
    if (result != WEFT_OK)
        return check_mismatch(disagreement->field, result) || close_rank(&self, &call);
    CHECK_OK(weft_ep_handle_create(self.ep, &call.handle, &self.handle));
    result = run_layer(&self, &call);
    if (check_mismatch(disagreement->field, result))
        return 1;
    CHECK_OK(weft_ep_handle_destroy(self.handle));
    CHECK_OK(weft_ep_destroy(self.ep));
    return close_rank(&self, &call);
}

/* In one communicator after another. */
static int disagree_on_each(struct ranks_context *context)
{
    static const struct disagreement disagreements[] = {
        {"num_experts", EP_DISPATCH, change_num_experts},
        {"max_topk", EP_DISPATCH, change_max_topk},
        {"placement", EP_DISPATCH, change_placement},
        {"num_topk", EP_DISPATCH, change_num_topk},
        {"num_experts of the handle", EP_NOTIFY, change_experts_of_handle},
        {"row_bytes of plane 0", EP_DISPATCH, change_row_bytes},
        {"num_planes", EP_DISPATCH, change_num_planes},
        {"dtype: WEFT_", EP_DISPATCH, change_quantisation},
        {"topk_idx", EP_DISPATCH, add_topk_idx},
        {"dtype: WEFT_", EP_COMBINE, change_dtype},
        {"hidden", EP_COMBINE, change_hidden},
        {"topk_weights", EP_COMBINE, add_combine_weights},
        {"combine", EP_DISPATCH, call_combine},
        {"notify", EP_DISPATCH, call_notify},
        {"notify", EP_COMBINE, call_notify},
        /* Over several nodes. */
        {"num_staging_slots", EP_NOTIFY, change_rings},
        {"max_tokens", EP_NOTIFY, change_max_tokens},
    };
    const size_t num_between_nodes = 2;
    const size_t num_disagreements = sizeof disagreements / sizeof disagreements[0] -
                                     (num_nodes_of(context) > 1 ? 0 : num_between_nodes);
    for (size_t i = 0; i < num_disagreements; i++) {
        /* Whose notify is no chunk, see below. */
        if (num_nodes_of(context) == context->num_ranks && disagreements[i].change == call_notify)
            continue;
        CHECK(disagree(context, &disagreements[i]) == 0, "disagreement %zu on %s: %.900s", i,
              disagreements[i].field, context->failure);
        ranks_barrier(context);
    }
    return 0;
}

TEST(every_disagreement)
{
    assert_int_equal(ranks_run(RANKS_THREADS, NUM_RANKS, disagree_on_each, NULL), 0);
    assert_int_equal(ranks_run(RANKS_PROCESSES, NUM_RANKS, disagree_on_each, NULL), 0);
}

/* Also those of the other node learn of it, though only a partner of the odd one hears from it; and
 * of four nodes of a rank. */
TEST_OVER(every_disagreement_between_nodes, "auto")
{
    for (int32_t num_nodes = 2; num_nodes <= MAX_RANKS; num_nodes += 2) {
        assert_int_equal(ranks_run(RANKS_THREADS, MAX_RANKS, disagree_on_each, &num_nodes), 0);
        assert_int_equal(ranks_run(RANKS_PROCESSES, MAX_RANKS, disagree_on_each, &num_nodes), 0);
    }
}

/* If each rank is a node, ranks that wait for chunks do not look at counts. */
static int notify_in_place_of_dispatch(struct ranks_context *context)
{
    char text[64];
    struct ep_rank self;
    struct call call;
    if (open_rank(&self, context, &call))
        return 1;
    call.operation = context->rank == ODD_ONE ? EP_NOTIFY : EP_DISPATCH;
    CHECK_OK(weft_ep_create(self.comm, &call.ep, &self.ep));
    CHECK_OK(weft_ep_handle_create(self.ep, &call.handle, &self.handle));
    snprintf(text, sizeof text, "rank %d called weft_ep_notify", ODD_ONE);
    CHECK_ERROR(run_layer(&self, &call), WEFT_ERROR_MISMATCH, text);
    CHECK(strstr(weft_last_error(), "called weft_ep_dispatch") != NULL, "%s", weft_last_error());
    ranks_barrier(context); /* nobody leaves before */
    CHECK_OK(weft_ep_handle_destroy(self.handle));
    CHECK_OK(weft_ep_destroy(self.ep));
    return close_rank(&self, &call);
}

TEST_OVER(a_notify_among_nodes_of_one_rank, "auto")
{
    int32_t num_nodes = MAX_RANKS;
    char deadline_ms[16];
    snprintf(deadline_ms, sizeof deadline_ms, "%u", tests_deadline_ms(1000));
    setenv("WEFT_TIMEOUT_MS", deadline_ms, 1);
    assert_int_equal(ranks_run(RANKS_PROCESSES, MAX_RANKS, notify_in_place_of_dispatch, &num_nodes),
                     0);
    unsetenv("WEFT_TIMEOUT_MS");
}

/* The type of the ids matters only where both sides have rows. */
TEST_ON_RANKS(index_types, RANKS_THREADS, NUM_RANKS)
{
    struct ep_rank self;
    struct call call;
    if (open_rank(&self, context, &call))
        return 1;
    add_topk_idx(&call);
    if (context->rank == ODD_ONE) {
        call.dispatch.index_type = WEFT_INT64;
        call.dispatch.topk_idx = call.wide_topk_idx.data;
    }
    call.operation = EP_DISPATCH;
    CHECK_OK(weft_ep_create(self.comm, &call.ep, &self.ep));
    CHECK_OK(weft_ep_handle_create(self.ep, &call.handle, &self.handle));
    if (check_mismatch("topk_idx of WEFT_INT64", run_layer(&self, &call)))
        return 1;
    CHECK_OK(weft_ep_handle_destroy(self.handle));
    CHECK_OK(weft_ep_destroy(self.ep));
    return close_rank(&self, &call);
}

/* A wrong call on one rank changes nothing: the right one after it works everywhere. */
TEST_IN_BOTH_MODES(wrong_calls_send_nothing, NUM_RANKS)
{
    struct ep_rank self;
    struct call call;
    if (open_rank(&self, context, &call))
        return 1;
    CHECK_OK(weft_ep_create(self.comm, &call.ep, &self.ep));
    CHECK_OK(weft_ep_handle_create(self.ep, &call.handle, &self.handle));
    for (int round = 0; round < 3; round++) {
        call.operation = EP_DISPATCH;
        if (context->rank == round) {
            weft_plane wrong = call.planes[0];
            wrong.dst = NULL;
            call.dispatch.planes = &wrong;
            CHECK_OK(lay_out(&call, self.handle, self.stream));
            CHECK_ERROR(weft_ep_dispatch(self.handle, &call.dispatch, self.stream),
                        WEFT_ERROR_INVALID_ARGUMENT, "weft_ep_notify");
            CHECK_OK(weft_ep_notify(self.handle, self.stream));
            CHECK_ERROR(weft_ep_dispatch(self.handle, &call.dispatch, self.stream),
                        WEFT_ERROR_INVALID_ARGUMENT, "planes[0].dst");
            call.dispatch.planes = call.planes;
            CHECK_OK(issue(&call, self.handle, self.stream));
            CHECK_OK(weft_stream_synchronize(self.stream));
        } else {
            CHECK_OK(run_layer(&self, &call));
        }
        call.operation = EP_COMBINE;
        CHECK_OK(issue(&call, self.handle, self.stream));
        CHECK_OK(weft_stream_synchronize(self.stream));
    }
    return ep_rank_leave(&self) || close_rank(&self, &call);
}
