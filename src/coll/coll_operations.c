/* SPDX-License-Identifier: MIT */
/* The collectives: which algorithm, and then by it (by_algorithm.c), a premultiplied sum by way of
 * its products (premultiplied.c). Neither of these calls back. */
#include "coll/coll.h"

/* For the record of what follows. */
static void tell(const struct weft__coll_call *call, weft_algorithm algorithm, const char *reason)
{
    const weft_collective collective = call->collective;
    const int is_one_row =
        collective == WEFT_ALL_REDUCE || collective == WEFT_BROADCAST || collective == WEFT_REDUCE;
    const uint64_t num_rows = is_one_row ? 1 : (uint64_t)call->coll->comm->num_ranks;
    weft__current_detail = (struct weft__call_detail){
        .call = weft__current_call,
        .num_bytes = num_rows * weft__coll_row_bytes(call),
        .algorithm = weft__algorithm_name(algorithm),
        .reason = reason,
    };
}

weft_result weft__coll_run(const struct weft__coll_call *call)
{
    const uint64_t row_bytes = weft__coll_row_bytes(call);
    const struct weft__coll_choice choice =
        weft__coll_choose(call->coll, call->collective, row_bytes);
    WEFT__TRY(
        weft__coll_check_algorithm(call->coll, call->collective, choice.algorithm, row_bytes));
    tell(call, choice.algorithm, weft__coll_reason_name(choice.reason));
    struct weft__coll_call chosen = *call;
    chosen.num_blocks = choice.num_blocks;
    chosen.num_warps = choice.num_warps;
    return call->op == WEFT_PREMUL_SUM ? weft__coll_run_premultiplied(&chosen, choice.algorithm)
                                       : weft__coll_run_by(&chosen, choice.algorithm);
}

/* A rank knows only its own rows, so they cannot choose the algorithm. */
weft_result weft__coll_exchange_v(const struct weft__coll_call *call,
                                  const struct weft__coll_v_rows *rows)
{
    weft_coll *coll = call->coll;
    weft_algorithm algorithm = coll->pinned[WEFT_ALL_TO_ALL];
    if (algorithm == WEFT_ALGORITHM_AUTO)
        algorithm = coll->internode != NULL ? WEFT_ALGORITHM_RAILS : WEFT_ALGORITHM_PUSH;
    for (int32_t rank = 0; rank < coll->comm->num_ranks; rank++) {
        WEFT__TRY(
            weft__coll_check_algorithm(coll, WEFT_ALL_TO_ALL, algorithm, rows->sent[rank].bytes));
        WEFT__TRY(weft__coll_check_algorithm(coll, WEFT_ALL_TO_ALL, algorithm,
                                             rows->received[rank].bytes));
    }
    return weft__coll_exchange_v_by(call, rows, algorithm);
}
