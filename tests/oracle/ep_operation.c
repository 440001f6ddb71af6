/* SPDX-License-Identifier: MIT */
#include "oracle/ep_operation.h"

const char *ep_operation_name(enum ep_operation operation)
{
    static const char *const names[] = {"notify", "dispatch", "combine", "barrier"};
    return names[operation];
}

static uint64_t recv_bytes(const struct ep_world *world, int32_t rank, int64_t hidden)
{
    return (uint64_t)world->received[rank].num_rows * (uint64_t)hidden * sizeof(float);
}

uint64_t ep_buffers_arena_bytes(const struct ep_world *world, int64_t hidden)
{
    uint64_t most = 0;
    for (int32_t rank = 0; rank < world->spec.num_ranks; rank++)
        if (recv_bytes(world, rank, hidden) > most)
            most = recv_bytes(world, rank, hidden);
    return most + 256;
}

int ep_buffers_create(struct ep_rank *self, int64_t hidden, struct ep_buffers *buffers)
{
    const int32_t rank = self->context->rank;
    const int32_t num_tokens = ep_oracle_num_tokens(&self->world->problem, rank);
    buffers->hidden = hidden;
    CHECK_OK(weft_arena_alloc(self->arena, recv_bytes(self->world, rank, hidden), &buffers->recv));
    return ep_array_alloc(self, &buffers->own, EP_INPUT,
                          (uint64_t)num_tokens * (uint64_t)hidden * sizeof(float), 0);
}

int ep_buffers_destroy(struct ep_rank *self, struct ep_buffers *buffers)
{
    return ep_array_free(self, &buffers->own);
}

static weft_result issue_dispatch(struct ep_rank *self, const struct ep_buffers *buffers)
{
    const weft_plane plane = {.size = sizeof(weft_plane),
                              .src = buffers->own.data,
                              .dst = buffers->recv,
                              .row_bytes = (uint64_t)buffers->hidden * sizeof(float)};
    return weft_ep_dispatch(
        self->handle,
        WEFT_ARGS(weft_ep_dispatch_args, .num_planes = 1, .planes = &plane,
                  .capacity = self->world->received[self->context->rank].num_rows),
        self->stream);
}

static weft_result issue_combine(struct ep_rank *self, const struct ep_buffers *buffers)
{
    return weft_ep_combine(
        self->handle,
        WEFT_ARGS(weft_ep_combine_args, .dtype = WEFT_FP32, .hidden = buffers->hidden,
                  .capacity = self->world->received[self->context->rank].num_rows,
                  .x = buffers->recv, .out = buffers->own.data),
        self->stream);
}

weft_result ep_operation_issue(struct ep_rank *self, const struct ep_buffers *buffers,
                               enum ep_operation operation)
{
    switch (operation) {
    case EP_NOTIFY:
        return weft_ep_notify(self->handle, self->stream);
    case EP_DISPATCH:
        return issue_dispatch(self, buffers);
    case EP_COMBINE:
        return issue_combine(self, buffers);
    default:
        return weft_comm_barrier(self->comm, self->stream);
    }
}

weft_result ep_operation_run(struct ep_rank *self, const struct ep_buffers *buffers,
                             enum ep_operation operation)
{
    const weft_result result = ep_operation_issue(self, buffers, operation);
    return result != WEFT_OK ? result : weft_stream_synchronize(self->stream);
}
