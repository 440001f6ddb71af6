/* SPDX-License-Identifier: MIT */
/* Words by which dispatch tells of each expert: what they tell is there, in all cases; an expert
 * begins while rows of another one are still missing; nobody waits for a word in vain. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/ll_scene.h"
#include "harness/machine.h"
#include "oracle/ll_seat.h"
#include "oracle/ll_trials.h"

/* ---------------------------------------------------------------- all cases */

static void ask_for_words(struct ll_trial *trial, size_t i)
{
    (void)i;
    trial->problem.has_expert_signals = 1;
}

TEST_CALL(words_are_raised, ll_trials_by_expert(RANKS_THREADS, LL_ONE_LAUNCH, ask_for_words))
TEST_CALL(words_are_raised_in_processes,
          ll_trials_by_expert(RANKS_PROCESSES, LL_TWO_RESULTS, ask_for_words))
TEST_CALL(words_are_raised_between_nodes, ll_trials_by_expert_over_nodes(ask_for_words))

/* ---------------------------------------------------------------- an expert that begins early */

/*
 * Each rank has two experts. Rank LATE_RANK has rows for the second one alone. The memory of its
 * last token cannot be read, so its dispatch stands still there, until the other ranks have seen
 * all rows of their first experts.
 */
enum { LATE_RANK = 1, NUM_RANKS = 3, NUM_TOKENS = 4, NUM_EXPERTS = 2 * NUM_RANKS, PAGE = 4096 };
enum { FIRST, SECOND, LIMIT_S = 20, SHORT_MS = 600 };

static int32_t num_tokens[NUM_RANKS];
static int32_t experts[NUM_RANKS][NUM_TOKENS][NUM_RANKS];
static float weights[NUM_RANKS][NUM_TOKENS][NUM_RANKS];
static const struct ll_routing routing = {num_tokens, experts[0][0], weights[0][0]};

static void fill_routing(void)
{
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        num_tokens[rank] = NUM_TOKENS;
        for (int32_t token = 0; token < NUM_TOKENS; token++)
            for (int32_t k = 0; k < NUM_RANKS; k++) {
                experts[rank][token][k] = 2 * k + (rank == LATE_RANK ? SECOND : token % 2);
                weights[rank][token][k] = 1;
            }
    }
}

struct meeting {             /* of all ranks */
    atomic_int num_began;    /* ranks that have seen the rows of their first experts */
    atomic_int was_too_late; /* the late rank went on without them */
};

static struct {
    char *tokens, *page;
    struct meeting *meeting;
} late;

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* On a stack of its own, of the thread that reads the token. */
static void wait_for_others(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    if ((char *)info->si_addr < late.page || (char *)info->si_addr >= late.page + PAGE)
        abort();
    for (int i = 0; i < LIMIT_S * 1000 && atomic_load(&late.meeting->num_began) < NUM_RANKS - 1;
         i++)
        nap();
    atomic_store(&late.meeting->was_too_late,
                 atomic_load(&late.meeting->num_began) < NUM_RANKS - 1);
    mprotect(late.page, PAGE, PROT_READ | PROT_WRITE);
}

static int hide_last_token(struct ll_seat *seat)
{
    const struct sigaction action = {.sa_sigaction = wait_for_others,
                                     .sa_flags = SA_SIGINFO | SA_ONSTACK};
    late.meeting = seat->context->shared;
    late.tokens =
        mmap(NULL, NUM_TOKENS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(late.tokens != MAP_FAILED, "no memory");
    late.page = late.tokens + (NUM_TOKENS - 1) * PAGE;
    memcpy(late.tokens, seat->steps[0].tokens, NUM_TOKENS * PAGE);
    seat->steps[0].tokens = late.tokens;
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && mprotect(late.page, PAGE, PROT_NONE) == 0,
          "the token can be read");
    return 0;
}

static void *run_stream(void *stream)
{
    static _Thread_local char memory[1 << 16];
    const stack_t stack = {.ss_sp = memory, .ss_size = sizeof memory};
    stack_t before; /* that of the address sanitizer, which looks for it at the thread's end */
    sigaltstack(&stack, &before);
    const weft_result result = weft_stream_synchronize(stream);
    sigaltstack(&before, NULL);
    return (void *)(intptr_t)result;
}

static int await_word(const uint64_t *word)
{
    for (int i = 0; i < LIMIT_S * 1000 && __atomic_load_n(word, __ATOMIC_ACQUIRE) == 0; i++)
        nap();
    CHECK(__atomic_load_n(word, __ATOMIC_ACQUIRE) == 1, "a word is %llu",
          (unsigned long long)*word);
    return 0;
}

/* The experts of a rank, while another thread runs dispatch. */
static int take_experts(struct ll_seat *seat)
{
    struct meeting *meeting = seat->context->shared;
    const uint64_t *words = seat->steps[0].expert_signals;
    const int has_masks = seat->problem->on_missing == WEFT_LL_MASK;
    if (seat->context->rank != LATE_RANK) {
        if (await_word(&words[FIRST]) || ll_check_expert(seat, 0, FIRST))
            return 1;
        CHECK(has_masks || __atomic_load_n(&words[SECOND], __ATOMIC_ACQUIRE) == 0,
              "all rows are told to be there");
        if (has_masks && await_word(&words[SECOND]))
            return 1;
        atomic_fetch_add(&meeting->num_began, 1);
    }
    return await_word(&words[SECOND]) || (!has_masks && ll_check_expert(seat, 0, SECOND));
}

/* With masks the late rank is missing: its rows have been announced, and never come. */
static int check_without_late(struct ll_seat *seat)
{
    const int32_t *missing = seat->steps[0].missing[0];
    CHECK(seat->context->rank == LATE_RANK || missing[LATE_RANK] == 1, "rank %d is not missing",
          LATE_RANK);
    if (ll_check_expert_signals(seat, 0, 1))
        return 1;
    ranks_barrier(seat->context);
    return ll_seat_close(seat);
}

static int run_late(struct ranks_context *context)
{
    struct ll_case problem = *(const struct ll_case *)context->argument;
    struct meeting *meeting = context->shared;
    struct ll_seat seat;
    pthread_t thread;
    void *result;
    fill_routing();
    problem.routing = &routing;
    if (context->rank == LATE_RANK)
        problem.num_warps = 1; /* it tells how many rows come before it stands still */
    if (ll_seat_open(&seat, context, &problem, NULL) || ll_fill_step(&seat, 0))
        return 1;
    char *tokens = seat.steps[0].tokens;
    CHECK_OK(weft_stream_destroy(seat.stream));
    CHECK_OK(weft_stream_wrap(seat.comm, NULL, &seat.stream)); /* run_stream heeds the signal */
    if (context->rank == LATE_RANK && hide_last_token(&seat))
        return 1;
    ranks_barrier(context);
    if (ll_dispatch(&seat, 0, WEFT_LL_SEND) || ll_dispatch(&seat, 0, WEFT_LL_RECEIVE))
        return 1;
    CHECK(pthread_create(&thread, NULL, run_stream, seat.stream) == 0, "no thread");
    const int failed = take_experts(&seat);
    pthread_join(thread, &result);
    CHECK((weft_result)(intptr_t)result == WEFT_OK, "dispatch has failed");
    CHECK(!atomic_load(&meeting->was_too_late), "no expert began before all rows had come");
    seat.steps[0].tokens = tokens;
    if (!failed && problem.on_missing == WEFT_LL_MASK)
        return check_without_late(&seat);
    return failed || ll_check_dispatched(&seat, 0) ||
           ll_combine(&seat, 0, WEFT_LL_SEND_AND_RECEIVE, 0) || ll_check_combined(&seat, 0) ||
           ll_seat_close(&seat);
}

static void run_with_late(weft_ll_on_missing on_missing)
{
    struct ll_case problem = {
        "early",
        LL_SIZES(NUM_RANKS, NUM_TOKENS, NUM_RANKS, NUM_EXPERTS, PAGE / sizeof(float)),
        LL_TYPES(FP32, FP32, INT32),
        LL_EXPERTS,
        .has_expert_signals = 1,
        .on_missing = on_missing,
        .missing_ms = on_missing == WEFT_LL_MASK ? tests_deadline_ms(SHORT_MS) : 0};
    if (tests_on_cuda())
        skip(); /* copies wait for the launch */
    for (int carrier = WEFT_LL_SIGNALS; carrier <= WEFT_LL_TOLD_PACKETS; carrier++) {
        problem.carrier = (weft_ll_carrier)carrier;
        problem.num_warps = carrier == WEFT_LL_SIGNALS ? 0 : 2 * NUM_RANKS;
        const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                              .num_ranks = NUM_RANKS,
                                              .shared_bytes = sizeof(struct meeting),
                                              RANKS_ARGUMENT(&problem)};
        if (ranks_run_with(&options, run_late) != 0)
            fail_msg("carrier %d", carrier);
    }
}

TEST_CALL(an_expert_begins_before_rows_of_another_have_come, run_with_late(WEFT_LL_FAIL))
TEST_CALL(words_are_raised_without_a_rank_that_goes_missing, run_with_late(WEFT_LL_MASK))

/* ---------------------------------------------------------------- what is refused */

#define SIGNALS_REFUSED(ll, given_phases, value, text)                                             \
    do {                                                                                           \
        weft_ll_dispatch_args args = ll_scene_dispatch_args(&scene, ll, given_phases);             \
        args.expert_signals = value;                                                               \
        args.call = WEFT_LL_CHECK;                                                                 \
        REFUSED(weft_ll_dispatch(ll, &args, scene.stream), text);                                  \
    } while (0)

TEST_ON_RANKS(expert_signals_are_refused, RANKS_THREADS, LL_SCENE_RANKS)
{
    struct ll_scene scene;
    if (ll_scene_open(context, &scene))
        return 1;
    uint64_t *words = (uint64_t *)(void *)(scene.numbers + 512);
    SIGNALS_REFUSED(scene.by_rank, WEFT_LL_SEND_AND_RECEIVE, words, "expert_signals is not NULL");
    SIGNALS_REFUSED(scene.by_expert, WEFT_LL_SEND, words, "expert_signals is not NULL");
    SIGNALS_REFUSED(scene.by_expert, WEFT_LL_SEND_AND_RECEIVE,
                    (uint64_t *)(void *)(scene.numbers + 513), "must be aligned to 8");
    SIGNALS_REFUSED(scene.by_expert, WEFT_LL_SEND_AND_RECEIVE,
                    (uint64_t *)(void *)(scene.numbers + 256), "expert_signals");
    return ll_scene_close(&scene);
}
