/* SPDX-License-Identifier: MIT */
#include "harness/board.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "harness/machine.h"
#include "harness/stock.h"

struct rank_thread {
    struct board *board;
    int32_t rank;
    pthread_t thread;
};

static void make_id(struct board *board, int32_t num_ranks)
{
    board->id_result = weft_unique_id_create(&board->id);
    snprintf(board->id_failure, sizeof(board->id_failure), "%s", weft_last_error());
    for (int32_t rank = 0; rank < num_ranks; rank++)
        sem_post(&board->id_made);
}

static struct board *board_of(struct ranks_context *context)
{
    return (struct board *)(void *)((char *)context->shared - offsetof(struct board, shared));
}

void ranks_barrier(struct ranks_context *context)
{
    struct board *board = board_of(context);
    uint32_t round = atomic_load(&board->barrier_round);
    atomic_fetch_add(&board->num_arrived, 1);
    const struct timespec pause = {.tv_nsec = 500000};
    while (atomic_load(&board->barrier_round) == round) {
        uint32_t num_arrived = atomic_load(&board->num_arrived);
        uint32_t num_expected = board->num_ranks - atomic_load(&board->num_gone);
        /* Whoever takes the arrivals away opens the next round. */
        if (num_arrived >= num_expected &&
            atomic_compare_exchange_strong(&board->num_arrived, &num_arrived, 0))
            atomic_fetch_add(&board->barrier_round, 1);
        else
            nanosleep(&pause, NULL);
    }
}

int ranks_warm_up(struct ranks_context *context)
{
    weft_comm *comm;
    if (!tests_on_cuda())
        return 0;
    CHECK_OK(ranks_comm_create(context, NULL, &comm));
    ranks_barrier(context);
    CHECK_OK(weft_comm_destroy(comm));
    ranks_barrier(context);
    return 0;
}

weft_comm *ranks_comm(struct ranks_context *context, const weft_comm_config *config)
{
    if (ranks_comm_create(context, config, &context->comm) != WEFT_OK)
        fprintf(stderr, "rank %d has no communicator: %s\n", context->rank, weft_last_error());
    return context->comm;
}

weft_stream *ranks_stream(struct ranks_context *context)
{
    weft_stream *stream = NULL;
    if (context->num_streams == RANKS_MAX_STREAMS ||
        weft_stream_create(context->comm, &stream) != WEFT_OK)
        fprintf(stderr, "rank %d has no stream: %s\n", context->rank, weft_last_error());
    else
        context->streams[context->num_streams++] = stream;
    return stream;
}

int ranks_leave(struct ranks_context *context)
{
    if (context->comm != NULL)
        CHECK_OK(weft_comm_destroy(context->comm));
    context->comm = NULL;
    while (context->num_streams > 0)
        CHECK_OK(weft_stream_destroy(context->streams[--context->num_streams]));
    return 0;
}

static int run_rank(struct board *board, int32_t rank)
{
    struct rank_slot *slot = &board->slots[rank];
    struct ranks_context context = {.rank = rank,
                                    .num_ranks = board->options.num_ranks,
                                    .argument = (void *)(uintptr_t)board->options.argument,
                                    .shared = board->shared};
    int result = 1;
    ranks_self = &context;
    if (board->options.id != RANKS_ID_NONE) {
        while (sem_wait(&board->id_made) != 0)
            continue;
        context.id = board->id;
    }
    if (board->options.id != RANKS_ID_NONE && board->id_result != WEFT_OK)
        snprintf(context.failure, sizeof(context.failure), "weft_unique_id_create: %s",
                 board->id_failure);
    else
        result = board->function(&context) != 0 || ranks_leave(&context);
    slot->result = result;
    memcpy(slot->failure, context.failure, sizeof(slot->failure));
    ranks_self = NULL;
    atomic_fetch_add(&board->num_gone, 1);
    return result;
}

static void *rank_thread_main(void *argument)
{
    struct rank_thread *self = argument;
    run_rank(self->board, self->rank);
    return NULL;
}

/* Communicators are no business of the next run. */
static int check_left(struct board *board, int32_t rank)
{
    struct rank_slot *slot = &board->slots[rank];
    const int num_left = stock_take().num_heap_mappings;
    if (num_left == 0 || slot->result != 0)
        return slot->result;
    snprintf(slot->failure, sizeof slot->failure,
             "the rank left communicators behind: %d heaps are mapped", num_left);
    return slot->result = 1;
}

int board_be_process(void *common, int32_t rank)
{
    struct board *board = common;
    if (rank == 0 && board->options.id == RANKS_ID_BY_RANK_0)
        make_id(board, board->options.num_ranks);
    run_rank(board, rank);
    const int failed = check_left(board, rank);
    atomic_store(&board->slots[rank].finished, 1);
    return failed;
}

int board_be_threads(void *common, int32_t unused)
{
    struct board *board = common;
    const int32_t num_ranks = board->options.num_ranks;
    struct rank_thread threads[RANKS_MAX];
    int num_failed = 0;
    (void)unused;
    tests_expect_ranks(num_ranks);
    if (board->options.id != RANKS_ID_NONE)
        make_id(board, num_ranks);
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        threads[rank] = (struct rank_thread){.board = board, .rank = rank};
        if (pthread_create(&threads[rank].thread, NULL, rank_thread_main, &threads[rank]) != 0)
            exit(2);
    }
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        pthread_join(threads[rank].thread, NULL);
        num_failed += board->slots[rank].result != 0;
    }
    for (int32_t rank = 0; rank < num_ranks; rank++) {
        if (num_failed == 0)
            num_failed += check_left(board, rank);
        atomic_store(&board->slots[rank].finished, 1);
    }
    return num_failed;
}

int board_be_host(void *common, int32_t unused)
{
    struct board *board = common;
    (void)unused;
    make_id(board, board->options.num_ranks);
    while (sem_wait(&board->host_may_leave) != 0)
        continue;
    return 0;
}
