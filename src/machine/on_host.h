/* SPDX-License-Identifier: MIT */
/* Shared by the machines whose programs run in the host's own memory: cpu and sim. */
#pragma once

#include "machine/host.h"

enum { WEFT__ON_HOST_MAX_WINDOWS = 64 };

weft_result weft__on_host_attach(weft_comm *comm);
weft_result weft__on_host_start(weft_comm *comm);
void weft__on_host_do_nothing(weft_comm *comm);
void weft__on_host_describe(weft_machine_info *info);
weft_result weft__on_host_describe_device(int32_t device_idx, weft_device_info *host);
int32_t weft__on_host_device_of(const weft_comm *comm);
weft_result weft__on_host_describe_no_network(const weft_comm *comm, weft_net_info *info);
weft_result weft__on_host_alloc(weft_comm *comm, uint64_t bytes, void **memory);
void weft__on_host_free(weft_comm *comm, void *memory);
weft_result weft__on_host_network_alloc(weft_comm *comm, uint64_t bytes, void **memory,
                                        uint64_t *place);
void weft__on_host_network_free(weft_comm *comm, void *memory);
weft_result weft__on_host_copy(weft_comm *comm, void *dst, const void *src, uint64_t bytes);
weft_result weft__on_host_check_pointer(weft_comm *comm, const void *ptr, const char *argument);
weft_result weft__on_host_find_block(weft_comm *comm, const void *ptr, uint64_t bytes,
                                     struct weft__block *block);
weft_result weft__on_host_share_block(weft_comm *comm, const struct weft__block *own,
                                      struct weft__block *blocks);
void weft__on_host_close_block(weft_comm *comm, const struct weft__block *block);
struct weft__grid weft__on_host_choose_grid(const weft_comm *comm, const struct weft__work *work);
int weft__on_host_stream_is_capturing(weft_stream *stream);
/* For a launch that is not begun. */
void weft__on_host_end_awaited_words(const struct weft__grid *grid);

/* The table of a machine, in the file that has its stream_* and event_* functions. */
#define WEFT__ON_HOST_MACHINE(machine_name, machine_start, machine_stop, machine_describe_network, \
                              machine_copy, machine_network_free, machine_choose_grid)             \
    {                                                                                              \
        .hooks = {.name = machine_name,                                                            \
                  .attach = weft__on_host_attach,                                                  \
                  .start = machine_start,                                                          \
                  .device_of = weft__on_host_device_of,                                            \
                  .stop = machine_stop,                                                            \
                  .detach = weft__on_host_do_nothing},                                             \
        .kind = WEFT_MACHINE_CPU, .max_windows = WEFT__ON_HOST_MAX_WINDOWS,                        \
        .describe = weft__on_host_describe, .describe_device = weft__on_host_describe_device,      \
        .ranks_per_core = ranks_per_core, .describe_network = machine_describe_network,            \
        .alloc = weft__on_host_alloc, .free = weft__on_host_free,                                  \
        .network_alloc = weft__on_host_network_alloc,                                              \
        .staging_alloc = weft__on_host_network_alloc, .network_free = machine_network_free,        \
        .copy = machine_copy, .check_pointer = weft__on_host_check_pointer,                        \
        .find_block = weft__on_host_find_block, .share_block = weft__on_host_share_block,          \
        .close_block = weft__on_host_close_block, .choose_grid = machine_choose_grid,              \
        .max_blocks = 1, .max_warps = WEFT_MAX_WARPS, .collect_failure = weft__on_host_do_nothing, \
        .stream_wrap = stream_wrap, .stream_is_capturing = weft__on_host_stream_is_capturing,      \
        .launch = stream_launch, .wait_launches = wait_launches, .stream_create = stream_create,   \
        .stream_destroy = stream_destroy, .stream_synchronize = stream_synchronize,                \
        .stream_call = stream_call, .stream_wait_event = stream_wait_event,                        \
        .event_create = event_create, .event_destroy = event_destroy,                              \
        .event_record = event_record, .event_synchronize = event_synchronize,                      \
        .event_elapsed_us = event_elapsed_us,                                                      \
    }
