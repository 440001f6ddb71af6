/* SPDX-License-Identifier: MIT */
#include "launch/programs.h"

#include "comm/host/thread.h"

/* The host's own machine: its primitives.h says how it names programs. */
#define DECLARE_PROGRAM(name) weft__program_fn WP_PROGRAM_SYMBOL(name);
WP_PROGRAM_LIST(DECLARE_PROGRAM)
#define X(name, ...) DECLARE_PROGRAM(name)
#include "programs/low_latency/variants.def"

#define PROGRAM_ENTRY(name) {#name, WP_PROGRAM_SYMBOL(name)},
static const struct weft__program programs[WP_NUM_PROGRAMS] = {
#define X(name, ...) PROGRAM_ENTRY(name)
#include "programs/low_latency/variants.def"
    WP_PROGRAM_LIST(PROGRAM_ENTRY)};

/* Whom the launches of a program meet; those that are not listed meet all. */
static enum weft__meeting meeting_of(enum wp_program program)
{
    switch (program) {
    case WP_PROGRAM_layout:
    case WP_PROGRAM_place_choices:
    case WP_PROGRAM_expand_rows:
    case WP_PROGRAM_reduce_rows:
    case WP_PROGRAM_choose_replicas:
    case WP_PROGRAM_add_copies:
    case WP_PROGRAM_copy:
    case WP_PROGRAM_premultiply:
    case WP_PROGRAM_quantise:
    case WP_PROGRAM_gate:
    case WP_PROGRAM_gate_backward:
    case WP_PROGRAM_gate_balance:
    case WP_PROGRAM_low_latency_mask:
    case WP_PROGRAM_low_latency_release:
        return WEFT__MEETS_NOBODY;
    case WP_PROGRAM_send_receive:
    case WP_PROGRAM_mapped_access:
    case WP_PROGRAM_remote_access:
    case WP_PROGRAM_wait_until:
        return WEFT__MEETS_SOME;
    default:
        return WEFT__MEETS_ALL;
    }
}

/* Enters the launch among the records of its communicator. */
static void record_launch(struct weft__launch *launch, const weft_stream *stream)
{
    weft_comm *comm = launch->comm;
    const struct weft__call_detail *detail = &weft__current_detail;
    if (comm->records == NULL)
        return;
    const int has_detail = detail->call == launch->call;
    const int is_captured = stream->machine->stream_is_capturing((weft_stream *)stream);
    const struct weft__record record = {
        .call = weft__call_name((int32_t)launch->call),
        .program = launch->program->name,
        .algorithm = has_detail ? detail->algorithm : NULL,
        .reason = has_detail ? detail->reason : NULL,
        .num_bytes = has_detail ? detail->num_bytes : 0,
        .stream_id = stream->id,
        .sequence = launch->sequence,
        .exchange = launch->exchange,
        .meeting = (int32_t)launch->meeting,
        .issued_ns = weft__now_ns(),
        .last_rank = WEFT__RECORD_NOBODY,
        .state = is_captured ? WEFT__RECORD_CAPTURED : WEFT__RECORD_ISSUED,
        .call_idx = (int32_t)launch->call,
    };
    launch->record_id = weft__records_issue(comm->records, &record);
    launch->record_state = (enum weft__record_state)record.state;
    launch->num_bytes = record.num_bytes;
    launch->is_phase = has_detail && detail->is_phase;
    weft__current_detail.num_bytes = 0; /* further launches of the call move the same ones */
}

weft_result weft__program_launch(weft_comm *comm, weft_stream *stream,
                                 const struct weft__program_run *run)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    const enum weft__meeting meeting = meeting_of(run->program);
    if (stream->machine != machine)
        return weft__invalid("stream is of machine %s, the communicator of machine %s",
                             stream->machine->hooks.name, machine->hooks.name);
    struct weft__launch launch = {
        .program = &programs[run->program],
        .args = run->args,
        .args_bytes = run->args_bytes,
        .grid = run->grid,
        .comm = comm,
        .call = weft__current_call,
        .meeting = meeting,
        .exchange = run->exchange,
        .sequence = run->num_meetings != NULL ? ++run->num_meetings[meeting] : 0,
        .on_failure = weft__program_failed,
    };
    record_launch(&launch, stream);
    const weft_result result = machine->launch(stream, &launch);
    if (result != WEFT_OK)
        weft__records_end(comm->records, launch.record_id,
                          &(struct weft__record){.last_rank = WEFT__RECORD_NOBODY,
                                                 .state = WEFT__RECORD_FAILED,
                                                 .call_idx = (int32_t)launch.call});
    return result;
}
