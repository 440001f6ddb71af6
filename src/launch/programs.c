/* SPDX-License-Identifier: MIT */
#include "launch/programs.h"

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

weft_result weft__program_launch(weft_comm *comm, weft_stream *stream, enum wp_program program,
                                 struct weft__grid grid, const void *args, size_t args_bytes)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    if (stream->machine != machine)
        return weft__error(WEFT_ERROR_INVALID_ARGUMENT,
                           "stream is of machine %s, the communicator of machine %s",
                           stream->machine->hooks.name, machine->hooks.name);
    const struct weft__launch launch = {
        .program = &programs[program],
        .args = args,
        .args_bytes = args_bytes,
        .grid = grid,
        .comm = comm,
        .call = weft__current_call,
        .on_failure = weft__program_failed,
    };
    return machine->launch(stream, &launch);
}
