/* SPDX-License-Identifier: MIT */
/* Operations of low latency in graphs, whose replays the host does not see: it lets them pass, and
 * the programs refuse those for which there is no result, or one too many, and nothing is
 * overwritten. */
#include "ep/low_latency.h"
#include "harness/cmocka.h"
#include "harness/ranks.h"

enum { TOKENS = 2, HIDDEN = 4, TOPK = 1 };

struct scene {
    weft_comm *comm;
    weft_stream *stream;
    weft_ll *ll;
    float *x;
    int32_t *topk_idx;
};

enum step { SEND_ROWS, RECEIVE_ROWS, SEND_ANSWERS, KEEP, RECEIVE_ANSWERS, RELEASE, END };

struct sequence {
    enum step steps[8]; /* up to END; the last one is wrong */
    const char *call;   /* which is refused */
};

/* Steps that end with one that is wrong. */
static const struct sequence sequences[] = {
    {{RECEIVE_ROWS, END}, "weft_ll_dispatch"},
    {{SEND_ROWS, RECEIVE_ROWS, RECEIVE_ROWS, END}, "weft_ll_dispatch"},
    {{SEND_ROWS, SEND_ROWS, SEND_ROWS, END}, "weft_ll_dispatch"},
    {{SEND_ROWS, SEND_ROWS, RECEIVE_ROWS, SEND_ANSWERS, SEND_ROWS, END}, "weft_ll_dispatch"},
    {{SEND_ROWS, SEND_ROWS, RECEIVE_ROWS, KEEP, RECEIVE_ANSWERS, SEND_ROWS, END},
     "weft_ll_dispatch"},
    {{SEND_ANSWERS, END}, "weft_ll_combine"},
    {{SEND_ROWS, SEND_ANSWERS, END}, "weft_ll_combine"},
    {{SEND_ROWS, RECEIVE_ROWS, SEND_ANSWERS, SEND_ANSWERS, END}, "weft_ll_combine"},
    {{SEND_ROWS, RECEIVE_ROWS, KEEP, KEEP, KEEP, END}, "weft_ll_combine"},
    {{RECEIVE_ANSWERS, END}, "weft_ll_combine"},
    {{SEND_ROWS, RECEIVE_ROWS, KEEP, RECEIVE_ANSWERS, RECEIVE_ANSWERS, END}, "weft_ll_combine"},
    {{RELEASE, END}, "weft_ll_release"},
    {{SEND_ROWS, RELEASE, END}, "weft_ll_release"},
    {{SEND_ROWS, RECEIVE_ROWS, KEEP, RELEASE, END}, "weft_ll_release"},
    {{SEND_ROWS, RECEIVE_ROWS, RELEASE, RELEASE, END}, "weft_ll_release"},
};
enum { NUM_SEQUENCES = sizeof sequences / sizeof *sequences };

static int open_scene(struct scene *scene)
{
    weft_ep *ep;
    void *memory;
    weft_unique_id id;
    CHECK_OK(weft_unique_id_create(&id));
    CHECK_OK(
        weft_comm_create(&id, 0, 1, WEFT_ARGS(weft_comm_config, .timeout_ms = 1000), &scene->comm));
    CHECK_OK(weft_stream_create(scene->comm, &scene->stream));
    CHECK_OK(weft_ep_create(scene->comm, WEFT_ARGS(weft_ep_config, .num_experts = 1), &ep));
    CHECK_OK(weft_ll_create(ep,
                            WEFT_ARGS(weft_ll_config, .hidden = HIDDEN, .max_tokens = TOKENS,
                                      .num_topk = TOPK, .dtype = WEFT_FP32),
                            &scene->ll));
    CHECK_OK(weft_memory_alloc(scene->comm, 4096, &memory));
    scene->x = memory;
    CHECK_OK(weft_memory_alloc(scene->comm, 4096, &memory));
    scene->topk_idx = memory; /* of zeroes */
    return 0;
}

static weft_result issue_rows(const struct scene *scene, enum step step)
{
    weft_ll_dispatch_args args = WEFT_INIT(weft_ll_dispatch_args);
    args.phases = step == SEND_ROWS ? WEFT_LL_SEND : WEFT_LL_RECEIVE;
    if (step == SEND_ROWS) {
        args.num_tokens = TOKENS;
        args.x = scene->x;
        args.topk_idx = scene->topk_idx;
        args.index_type = WEFT_INT32;
    }
    return weft_ll_dispatch(scene->ll, &args, scene->stream);
}

static weft_result issue_answers(const struct scene *scene, enum step step)
{
    weft_ll_combine_args args = WEFT_INIT(weft_ll_combine_args);
    args.phases = step == RECEIVE_ANSWERS ? WEFT_LL_RECEIVE : WEFT_LL_SEND;
    args.keep = step == KEEP;
    if (step == RECEIVE_ANSWERS)
        args.out = scene->x + 512;
    else
        args.x = scene->x;
    return weft_ll_combine(scene->ll, &args, scene->stream);
}

/* As after a graph, of which the host has counted nothing. */
static weft_result issue(const struct scene *scene, enum step step)
{
    scene->ll->issued = (struct weft__ll_issued){.is_in_graphs = 1};
    if (step == RELEASE)
        return weft_ll_release(scene->ll, scene->stream);
    return step <= RECEIVE_ROWS ? issue_rows(scene, step) : issue_answers(scene, step);
}

static int run_sequence(const struct sequence *sequence)
{
    struct scene scene;
    weft_result result = WEFT_OK;
    if (open_scene(&scene))
        return 1;
    for (int i = 0; sequence->steps[i] != END; i++) {
        const int is_wrong = sequence->steps[i + 1] == END;
        CHECK_OK(issue(&scene, sequence->steps[i]));
        result = weft_stream_synchronize(scene.stream);
        CHECK(is_wrong || result == WEFT_OK, "step %d: %s", i, weft_last_error());
    }
    CHECK(result == WEFT_ERROR_INVALID_ARGUMENT, "\"%s\": %s", weft_result_string(result),
          weft_last_error());
    CHECK(strncmp(weft_last_error(), sequence->call, strlen(sequence->call)) == 0 &&
              strstr(weft_last_error(), "in a graph") != NULL,
          "%s", weft_last_error());
    CHECK_OK(weft_comm_destroy(scene.comm));
    CHECK_OK(weft_stream_destroy(scene.stream));
    return 0;
}

TEST_ON_RANKS(programs_refuse_what_the_host_has_not_seen, RANKS_THREADS, 1)
{
    for (int i = 0; i < NUM_SEQUENCES; i++) {
        CHECK(run_sequence(&sequences[i]) == 0, "sequence %d: %.900s", i, context->failure);
    }
    return 0;
}

static int is_capturing(weft_stream *stream)
{
    (void)stream;
    return 1;
}

/* So the host does not refuse a third result, which may be the first one of another graph. */
TEST_ON_RANKS(what_is_captured_is_not_counted, RANKS_THREADS, 1)
{
    struct scene scene;
    (void)context;
    if (open_scene(&scene))
        return 1;
    struct weft__machine machine = *scene.stream->machine;
    weft_stream captured = *scene.stream;
    machine.stream_is_capturing = is_capturing;
    captured.machine = &machine;
    CHECK_OK(weft__ll_check_dispatch(scene.ll, WEFT_LL_SEND, &captured));
    for (int i = 0; i < 2; i++)
        CHECK_OK(issue_rows(&scene, SEND_ROWS));
    CHECK_OK(weft_stream_synchronize(scene.stream));
    CHECK_OK(issue_rows(&scene, SEND_ROWS));
    CHECK_ERROR(weft_stream_synchronize(scene.stream), WEFT_ERROR_INVALID_ARGUMENT, "in a graph");
    CHECK_OK(weft_comm_destroy(scene.comm));
    CHECK_OK(weft_stream_destroy(scene.stream));
    return 0;
}
