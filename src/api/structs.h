/* SPDX-License-Identifier: MIT */
/*
 * The structs of weft.h, which callers of other versions have shorter or longer. Each opens with
 * `size`, and fields are only ever appended: so a struct that the caller gives is copied as far as
 * both sides know it and the rest is zero, and one that the caller gets is written as far as both
 * sides know it.
 */
#pragma once

#include "api/check.h"

/* Each with the last field of its first version: callers give no less. */
#define WEFT__STRUCTS(X)                                                                           \
    X(weft_comm_config, num_streams)                                                               \
    X(weft_env_info, num_ranks_variable)                                                           \
    X(weft_job_rank, error)                                                                        \
    X(weft_team_info, team_idx)                                                                    \
    X(weft_machine_info, reason)                                                                   \
    X(weft_device_info, name)                                                                      \
    X(weft_net_info, gpu_memory)                                                                   \
    X(weft_heap_info, page_bytes)                                                                  \
    X(weft_stats, waited_ns)                                                                       \
    X(weft_peer_stats, late_ns)                                                                    \
    X(weft_balance_config, target_imbalance)                                                       \
    X(weft_expert_move, reserved)                                                                  \
    X(weft_slowest, call)                                                                          \
    X(weft_rma_args, reserved)                                                                     \
    X(weft_rows_args, reserved)                                                                    \
    X(weft_gate_args, reserved)                                                                    \
    X(weft_gate_backward_args, scale)                                                              \
    X(weft_gate_balance_args, step)                                                                \
    X(weft_coll_choice, algorithm)                                                                 \
    X(weft_coll_config, num_staging_slots)                                                         \
    X(weft_coll_args, factor)                                                                      \
    X(weft_coll_all_to_all_v_args, reserved)                                                       \
    X(weft_coll_send_args, peer)                                                                   \
    X(weft_coll_recv_args, peer)                                                                   \
    X(weft_coll_explanation, table)                                                                \
    X(weft_ep_config, reserved)                                                                    \
    X(weft_ep_handle_config, num_experts)                                                          \
    X(weft_ep_layout_args, is_token_in_rank)                                                       \
    X(weft_ep_counts, max_recv_tokens)                                                             \
    X(weft_ep_device_counts, recv_rank_ends)                                                       \
    X(weft_plane, src_stride_bytes)                                                                \
    X(weft_ep_dispatch_args, num_blocks)                                                           \
    X(weft_ep_combine_args, reserved)                                                              \
    X(weft_ep_expand_args, num_blocks)                                                             \
    X(weft_ep_reduce_args, reserved)                                                               \
    X(weft_ep_replicas_args, num_experts)                                                          \
    X(weft_ep_copies_args, staging_bytes)                                                          \
    X(weft_ep_size_args, with_src_token)                                                           \
    X(weft_ep_sizes, sum_bytes)                                                                    \
    X(weft_ll_config, missing_ms)                                                                  \
    X(weft_ll_sizes, network_bytes)                                                                \
    X(weft_ll_job, num_nodes)                                                                      \
    X(weft_ll_dispatch_args, waited_ns)                                                            \
    X(weft_ll_slots, half)                                                                         \
    X(weft_ll_combine_args, waited_ns)

#define WEFT__STRUCT_ENUMERATOR(type, last) WEFT__STRUCT_##type,
enum weft__struct { WEFT__STRUCTS(WEFT__STRUCT_ENUMERATOR) WEFT__NUM_STRUCTS };
#undef WEFT__STRUCT_ENUMERATOR

/* Copies what the caller gives as argument `name`, which must not be NULL. */
weft_result weft__struct_read(enum weft__struct type, void *copy, const void *given,
                              const char *name);
/* The same, but NULL stands for zeros. */
weft_result weft__struct_read_optional(enum weft__struct type, void *copy, const void *given,
                                       const char *name);
/* The same for an array of `count` structs, whose size is that of the first; NULL if count is 0. */
weft_result weft__struct_read_array(enum weft__struct type, void *copies, const void *given,
                                    int32_t count, const char *name);

/* Before anything is done for a struct that the caller gets: the memory is there. */
weft_result weft__struct_check(enum weft__struct type, const void *given, const char *name);
/* Checks an array of `count` structs in the same way; the first one tells the size of each. */
weft_result weft__struct_check_array(enum weft__struct type, const void *given, int32_t count,
                                     const char *name);
/* Fills in a struct that has been checked, all but its size. */
void weft__struct_write(enum weft__struct type, void *given, const void *filled);

#define WEFT__READ(type, copy, given, name)                                                        \
    weft__struct_read(WEFT__STRUCT_##type, (type *){copy}, (const type *){given}, name)
#define WEFT__READ_OPTIONAL(type, copy, given, name)                                               \
    weft__struct_read_optional(WEFT__STRUCT_##type, (type *){copy}, (const type *){given}, name)
#define WEFT__READ_ARRAY(type, copies, given, count, name)                                         \
    weft__struct_read_array(WEFT__STRUCT_##type, (type *){copies}, (const type *){given}, count,   \
                            name)
#define WEFT__CHECK_OUTPUT(type, given, name)                                                      \
    weft__struct_check(WEFT__STRUCT_##type, (const type *){given}, name)
#define WEFT__CHECK_OUTPUTS(type, given, count, name)                                              \
    weft__struct_check_array(WEFT__STRUCT_##type, (const type *){given}, count, name)
#define WEFT__WRITE(type, given, filled)                                                           \
    weft__struct_write(WEFT__STRUCT_##type, (type *){given}, (const type *){filled})
