/* SPDX-License-Identifier: MIT */
#include "ep/gate.h"

#include "programs/reciprocal.h"

/* A warp for each token, as far as they go. */
static weft_result launch(weft_comm *comm, const struct weft__program_run *of_tokens,
                          int32_t num_tokens, weft_stream *stream)
{
    const struct weft__work work = {.kind = WEFT__WORK_TOKENS, .num_tokens = num_tokens};
    struct weft__program_run run = *of_tokens;
    WEFT__TRY(weft__status_check(&comm->status));
    if (num_tokens == 0)
        return WEFT_OK;
    run.grid = weft__machine_of(comm)->choose_grid(comm, &work);
    return weft__program_launch(comm, stream, &run);
}

weft_result weft__gate_choose(weft_comm *comm, const struct wp_gate_args *given,
                              weft_stream *stream)
{
    struct wp_gate_args args = *given;
    args.group_experts = args.logits.num_experts / args.num_groups;
    args.group_reciprocal = wp_reciprocal((uint32_t)args.group_experts);
    const struct weft__program_run run = {
        .program = WP_PROGRAM_gate, .args = &args, .args_bytes = sizeof args};
    return launch(comm, &run, args.num_tokens, stream);
}

weft_result weft__gate_backward(weft_comm *comm, const struct wp_gate_backward_args *args,
                                weft_stream *stream)
{
    const struct weft__program_run run = {
        .program = WP_PROGRAM_gate_backward, .args = args, .args_bytes = sizeof *args};
    return launch(comm, &run, args->num_tokens, stream);
}

weft_result weft__gate_balance(weft_comm *comm, const struct wp_gate_balance_args *args,
                               weft_stream *stream)
{
    const struct weft__program_run run = {
        .program = WP_PROGRAM_gate_balance, .args = args, .args_bytes = sizeof *args};
    return launch(comm, &run, 1, stream); /* one block: as for a token */
}
