/* SPDX-License-Identifier: MIT */
/* A machine that records launches as CUDA does, and is the host's else. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "machine/host.h"

enum { MAX_LAUNCHES = 256 };

struct graph {
    int num_launches;
    struct weft__launch launches[MAX_LAUNCHES];
};

/* Each rank is a thread. */
static _Thread_local struct weft__machine machine;
static _Thread_local struct graph *recorded; /* NULL: launches run */

static int is_capturing(weft_stream *stream)
{
    (void)stream;
    return recorded != NULL;
}

static weft_result launch(weft_stream *stream, const struct weft__launch *launched)
{
    if (recorded == NULL)
        return weft__host_machine.launch(stream, launched);
    void *args = malloc(launched->args_bytes);
    if (args == NULL || recorded->num_launches == MAX_LAUNCHES) {
        free(args);
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "too many launches");
    }
    struct weft__launch *kept = &recorded->launches[recorded->num_launches++];
    *kept = *launched;
    kept->args = memcpy(args, launched->args, launched->args_bytes);
    return WEFT_OK;
}

/* Before objects of the communicator are made. */
static void use_recording_machine(weft_comm *comm)
{
    machine = weft__host_machine;
    machine.stream_is_capturing = is_capturing;
    machine.launch = launch;
    comm->hooks = &machine.hooks;
}

static void forget(struct graph *graph)
{
    for (int i = 0; i < graph->num_launches; i++)
        free((void *)(uintptr_t)graph->launches[i].args);
    graph->num_launches = 0;
}

/* In the order of the recorded calls. */
static weft_result launch_recorded(weft_stream *stream, const struct graph *graph)
{
    weft_result result = WEFT_OK;
    for (int i = 0; i < graph->num_launches && result == WEFT_OK; i++)
        result = weft__host_machine.launch(stream, &graph->launches[i]);
    return result;
}
