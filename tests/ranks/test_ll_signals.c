/* SPDX-License-Identifier: MIT */
/* Combine that begins while experts work: words tell of finished rows, late and in any order.
 * What comes has the bits of rows that were there before. A word that never comes is an error in
 * time. */
#include "harness/cmocka.h"
#include "harness/ll_scene.h"
#include "harness/machine.h"
#include "oracle/ll_late.h"
#include "oracle/ll_trials.h"

/* Words of experts, of blocks of rows, and of blocks that hold more than all. */
static void come_late(struct ll_trial *trial, size_t i)
{
    static const int32_t late_rows[] = {LL_LATE_EXPERTS, 1, 3, 1 << 20};
    trial->problem.late_rows =
        late_rows[(i / LL_NUM_WAYS + trial->way) % (sizeof late_rows / sizeof *late_rows)];
}

TEST_CALL(rows_come_late, ll_trials_by_expert(RANKS_THREADS, LL_ONE_LAUNCH, come_late))
TEST_CALL(rows_come_late_in_processes,
          ll_trials_by_expert(RANKS_PROCESSES, LL_TWO_PHASES, come_late))
TEST_CALL(rows_come_late_between_nodes, ll_trials_by_expert_over_nodes(come_late))

/* ---------------------------------------------------------------- a word that does not come */

enum { SILENT_RANK = 1, SHORT_MS = 400 };

/* Every rank tells of all its rows, but one of none. */
static int run_silent(struct ranks_context *context)
{
    struct ll_case problem = *(const struct ll_case *)context->argument;
    weft_comm_config config = WEFT_INIT(weft_comm_config);
    const int is_silent = context->rank == SILENT_RANK;
    struct ll_seat seat;
    config.timeout_ms = SHORT_MS;
    if (ll_seat_open(&seat, context, &problem, &config) || ll_fill_step(&seat, 0) ||
        ll_dispatch(&seat, 0, WEFT_LL_SEND_AND_RECEIVE) || ll_check_dispatched(&seat, 0) ||
        ll_take_rows_away(&seat, 0))
        return 1;
    CHECK_OK(ll_issue_combine(&seat, 0, WEFT_LL_SEND_AND_RECEIVE, 0));
    if (!is_silent && ll_finish_rows(&seat, 0))
        return 1;
    const weft_result result = weft_stream_synchronize(seat.stream);
    CHECK(result == WEFT_ERROR_TIMEOUT, "the result is %d", (int)result);
    /* The first wait of any rank that ends tells: for rows, or for the rank that waits for them. */
    CHECK(strstr(weft_last_error(), "rank 1 waited for rows of its local expert") != NULL ||
              strstr(weft_last_error(), "rank 1 waits for its own work") != NULL,
          "rank 1 is not blamed for its rows: %s", weft_last_error());
    int32_t failed_rank = -1;
    (void)weft_comm_status(seat.comm, &failed_rank);
    CHECK(failed_rank == SILENT_RANK, "failed_rank is %d: %s", failed_rank, weft_last_error());
    return ll_seat_close(&seat);
}

TEST(a_word_that_never_comes)
{
    struct ll_case problem = {
        "never",   LL_SIZES(2, 4, 2, 6, 64),    LL_TYPES(BF16, BF16, INT32), LL_EXPERTS,
        .seed = 5, .late_rows = LL_LATE_EXPERTS};
    for (int carrier = WEFT_LL_SIGNALS; carrier <= WEFT_LL_TOLD_PACKETS; carrier++) {
        problem.carrier = (weft_ll_carrier)carrier;
        if (ranks_run(RANKS_THREADS, problem.num_ranks, run_silent, &problem) != 0)
            fail_msg("carrier %d", carrier);
    }
}

/* ---------------------------------------------------------------- what is refused */

#define SIGNALS_REFUSED(ll, given_phases, field, value, text)                                      \
    do {                                                                                           \
        weft_ll_combine_args args = ll_scene_combine_args(&scene, ll, given_phases);               \
        args.row_signals = (const uint32_t *)(scene.numbers + 512);                                \
        args.signal_value = 1;                                                                     \
        args.call = WEFT_LL_CHECK;                                                                 \
        args.field = value;                                                                        \
        REFUSED(weft_ll_combine(ll, &args, scene.stream), text);                                   \
    } while (0)

TEST_ON_RANKS(signals_are_refused, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    if (ll_scene_open(context, &scene))
        return 1;
    CHECK_OK(ll_scene_dispatch(&scene, scene.by_expert, WEFT_LL_SEND_AND_RECEIVE));
    SIGNALS_REFUSED(scene.by_rank, WEFT_LL_SEND, keep, 0, "row_signals is not NULL");
    SIGNALS_REFUSED(scene.by_expert, WEFT_LL_RECEIVE, keep, 0, "row_signals is not NULL");
    SIGNALS_REFUSED(scene.by_expert, WEFT_LL_SEND, signal_value, 0, "signal_value is 0, must be 1");
    SIGNALS_REFUSED(scene.by_expert, WEFT_LL_SEND, rows_per_signal, -1, "rows_per_signal is -1");
    SIGNALS_REFUSED(scene.by_expert, WEFT_LL_SEND, row_signals, NULL, "signal_value is 1");
    SIGNALS_REFUSED(scene.by_expert, WEFT_LL_SEND, row_signals,
                    (const uint32_t *)(const void *)((const char *)(scene.numbers + 512) + 2),
                    "must be aligned to 4 bytes");
    SIGNALS_REFUSED(scene.by_expert, WEFT_LL_SEND_AND_RECEIVE, row_signals,
                    (const uint32_t *)(const void *)scene.out, "row_signals");
    return ll_scene_close(&scene);
}
