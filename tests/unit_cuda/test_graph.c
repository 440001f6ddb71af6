/* SPDX-License-Identifier: MIT */
/* Whose operations a graph of the cuda machine takes for its own, and how captures end, with a
 * driver that only keeps the states of streams. */
#include <string.h>

#include "harness/cmocka.h"
#include "machine/cuda/cuda_graph.h"
#include "unit_cuda/plain_driver.h"

/* ---------------------------------------------------------------- a driver */

struct CUstream_st {
    cuuint64_t capture_id; /* 0: not under capture */
    CUresult end_result;   /* of cuStreamEndCapture; WRONG_THREAD leaves the capture as it is */
};

static cuuint64_t last_capture_id;
static int num_graphs, num_execs, num_launches; /* that exist, but of launches */
static CUresult instantiate_result;

static CUresult begin_capture(CUstream stream, CUstreamCaptureMode mode)
{
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    assert_int_equal(stream->capture_id, 0);
    stream->capture_id = ++last_capture_id;
    return CUDA_SUCCESS;
}

static CUresult end_capture(CUstream stream, CUgraph *graph)
{
    if (stream->end_result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        return stream->end_result;
    if (stream->capture_id == 0)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->capture_id = 0;
    if (stream->end_result != CUDA_SUCCESS)
        return stream->end_result;
    num_graphs++;
    *graph = (CUgraph)(void *)&num_graphs;
    return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status =
        stream->capture_id != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

/* Asked only while there is a capture. */
static CUresult get_capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                 CUgraph *graph, const CUgraphNode **dependencies,
                                 size_t *num_dependencies)
{
    assert_true(graph == NULL && dependencies == NULL && num_dependencies == NULL);
    assert_int_not_equal(stream->capture_id, 0);
    *id = stream->capture_id;
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    assert_non_null(graph);
    assert_int_equal(flags, 0);
    if (instantiate_result != CUDA_SUCCESS)
        return instantiate_result;
    num_execs++;
    *exec = (CUgraphExec)(void *)&num_execs;
    return CUDA_SUCCESS;
}

static CUresult upload(CUgraphExec exec, CUstream stream)
{
    assert_non_null(exec);
    return stream->capture_id == 0 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}

static CUresult launch(CUgraphExec exec, CUstream stream)
{
    assert_non_null(exec);
    assert_int_equal(stream->capture_id, 0);
    num_launches++;
    return CUDA_SUCCESS;
}

static CUresult destroy_graph(CUgraph graph)
{
    assert_non_null(graph);
    num_graphs--;
    return CUDA_SUCCESS;
}

static CUresult destroy_exec(CUgraphExec exec)
{
    assert_non_null(exec);
    num_execs--;
    return CUDA_SUCCESS;
}

/* ---------------------------------------------------------------- streams */

enum { NUM_STREAMS = 3 };

static struct CUstream_st natives[NUM_STREAMS];
static struct weft__cuda_stream streams[NUM_STREAMS];
static weft_comm comms[2];

static int open_streams(void **state)
{
    (void)state;
    memset(natives, 0, sizeof natives);
    memset(streams, 0, sizeof streams);
    for (int i = 0; i < NUM_STREAMS; i++) {
        streams[i].queue.stream = &natives[i];
        weft__cuda_comms_open(&streams[i].comms);
    }
    num_launches = 0;
    instantiate_result = CUDA_SUCCESS;
    return 0;
}

static int close_streams(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_STREAMS; i++)
        weft__cuda_comms_close(&streams[i].comms);
    return num_graphs == 0 && num_execs == 0 ? 0 : -1;
}

/* As a launch on the stream does. */
static void record_operation(int stream_idx, weft_comm *comm)
{
    const struct weft__cuda_capture capture = weft__cuda_capture_of(&streams[stream_idx]);
    assert_true(capture.is_going_on);
    struct weft__cuda_comms *of_graph = weft__cuda_graph_comms(capture.id);
    assert_non_null(of_graph);
    assert_ok(weft__cuda_comms_add(of_graph, comm));
}

static void begin(int stream_idx)
{
    assert_ok(weft__cuda_graphs.begin(&streams[stream_idx].base));
}

static weft_graph *end(int stream_idx)
{
    weft_graph *graph = NULL;
    assert_ok(weft__cuda_graphs.end(&streams[stream_idx].base, &graph));
    assert_non_null(graph);
    return graph;
}

static weft_result launch_on(weft_graph *graph, int stream_idx)
{
    return weft__cuda_graphs.launch(graph, &streams[stream_idx].base);
}

/* ---------------------------------------------------------------- cases */

#define CASE(name) TEST_AS(name, cmocka_unit_test_setup_teardown(name, open_streams, close_streams))

/* Another stream takes part in the first capture; a second one goes on at the same time. */
CASE(streams_answer_for_what_a_graph_recorded)
{
    begin(0);
    begin(1);
    natives[2].capture_id = natives[0].capture_id;
    record_operation(2, &comms[0]);
    record_operation(1, &comms[1]);
    natives[2].capture_id = 0;
    weft_graph *first = end(0), *second = end(1);
    assert_null(weft__cuda_comms_take(&streams[2].comms));
    assert_ok(launch_on(first, 2));
    assert_ok(launch_on(first, 2));
    assert_ok(launch_on(second, 1));
    assert_int_equal(num_launches, 3);
    assert_ptr_equal(weft__cuda_comms_take(&streams[2].comms), &comms[0]);
    assert_null(weft__cuda_comms_take(&streams[2].comms));
    assert_ptr_equal(weft__cuda_comms_take(&streams[1].comms), &comms[1]);
    assert_null(weft__cuda_comms_take(&streams[1].comms));
    assert_null(weft__cuda_comms_take(&streams[0].comms));
    weft__cuda_graphs.destroy(first);
    weft__cuda_graphs.destroy(second);
}

CASE(a_communicator_that_goes_is_forgotten)
{
    begin(0);
    record_operation(0, &comms[0]);
    record_operation(0, &comms[1]);
    weft_graph *graph = end(0);
    assert_ok(launch_on(graph, 1));
    weft__cuda_comms_forget(&comms[0]);
    assert_ok(launch_on(graph, 2));
    for (int i = 1; i < NUM_STREAMS; i++) {
        assert_ptr_equal(weft__cuda_comms_take(&streams[i].comms), &comms[1]);
        assert_null(weft__cuda_comms_take(&streams[i].comms));
    }
    weft__cuda_graphs.destroy(graph);
}

CASE(other_captures_are_none_of_its)
{
    begin(0);
    natives[1].capture_id = ++last_capture_id; /* by CUDA's own functions */
    assert_null(weft__cuda_graph_comms(weft__cuda_capture_of(&streams[1]).id));
    assert_int_equal(weft__cuda_graphs.begin(&streams[1].base), WEFT_ERROR_INVALID_ARGUMENT);
    natives[1].capture_id = 0;
    const cuuint64_t id = natives[0].capture_id;
    weft_graph *graph = end(0);
    assert_null(weft__cuda_graph_comms(id));
    begin(1);
    assert_int_equal(launch_on(graph, 1), WEFT_ERROR_INVALID_ARGUMENT);
    weft__cuda_graphs.destroy(graph);
    weft__cuda_graphs.destroy(end(1));
}

CASE(only_the_thread_that_began_can_end)
{
    weft_graph *graph = NULL;
    begin(0);
    natives[0].end_result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    assert_int_equal(weft__cuda_graphs.end(&streams[0].base, &graph), WEFT_ERROR_INVALID_ARGUMENT);
    natives[0].end_result = CUDA_SUCCESS;
    weft__cuda_graphs.destroy(end(0));
}

CASE(after_an_error_the_capture_has_ended)
{
    weft_graph *graph = NULL;
    begin(0);
    natives[0].end_result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    assert_int_equal(weft__cuda_graphs.end(&streams[0].base, &graph), WEFT_ERROR_SYSTEM);
    natives[0].end_result = CUDA_SUCCESS;
    begin(0);
    instantiate_result = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(weft__cuda_graphs.end(&streams[0].base, &graph), WEFT_ERROR_OUT_OF_MEMORY);
    assert_int_equal(weft__cuda_graphs.end(&streams[0].base, &graph), WEFT_ERROR_INVALID_ARGUMENT);
    assert_null(graph);
}

CASE(captures_are_abandoned)
{
    begin(0);
    weft__cuda_graph_abandon(&streams[0]);
    assert_int_equal(natives[0].capture_id, 0);
    begin(1);
    const cuuint64_t id = natives[1].capture_id;
    natives[1].capture_id = 0; /* ended by CUDA's own functions */
    begin(1);
    assert_null(weft__cuda_graph_comms(id));
    weft__cuda_graphs.destroy(end(1));
    weft__cuda_graph_abandon(&streams[1]);
}

int main(void)
{
    use_plain_driver();
    weft__cu.stream_begin_capture = begin_capture;
    weft__cu.stream_end_capture = end_capture;
    weft__cu.stream_is_capturing = is_capturing;
    weft__cu.stream_get_capture_info = get_capture_info;
    weft__cu.graph_instantiate = instantiate;
    weft__cu.graph_upload = upload;
    weft__cu.graph_launch = launch;
    weft__cu.graph_destroy = destroy_graph;
    weft__cu.graph_exec_destroy = destroy_exec;
    return tests_run(NULL, NULL);
}
