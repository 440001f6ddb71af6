/* SPDX-License-Identifier: MIT */
/* One-sided operations, on one node and on several: what they do to memory, against a model that
 * every rank computes for itself, and what signals, fences and quiet tell. */
#include <stdlib.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum {
    ROW_BYTES = 3 * 70000, /* more than a message of the network, and than a warp's chunk */
    NUM_WORDS = 4,
    NUM_OPERATIONS = 12, /* of a rank in a round */
    NUM_ROUNDS = 5,
    NUM_LETTERS = 40,
    LETTER_BYTES = 5000,
    NUM_TICKETS = 30
};

struct shape {
    int32_t num_ranks, num_nodes;
    const char *engine;
};

/* In the heap of every rank. */
struct area {
    unsigned char rows[RANKS_MAX / 8][ROW_BYTES]; /* row r is written by rank r alone */
    unsigned char source[ROW_BYTES], fetched[ROW_BYTES];
    unsigned char letter[LETTER_BYTES], draft[LETTER_BYTES]; /* used again and again */
    unsigned char drafts[NUM_LETTERS][LETTER_BYTES], archive[NUM_LETTERS][LETTER_BYTES];
    uint64_t words[NUM_WORDS];
    uint64_t num_letters, num_read; /* signals */
    uint64_t tickets[NUM_TICKETS];
};

struct actor {
    struct ranks_context *context;
    weft_comm *comm;
    weft_stream *stream, *other_stream;
    struct area *area;   /* in the heap */
    struct area *image;  /* of the host, for copies */
    struct area *models; /* [num_ranks] what the areas should be: rows and words */
};

static int32_t num_ranks_of(const struct actor *actor)
{
    return actor->context->num_ranks;
}

/* ---------------------------------------------------------------- life */

static int meet(struct actor *actor)
{
    CHECK_OK(weft_stream_synchronize(actor->stream));
    CHECK_OK(weft_comm_host_barrier(actor->comm));
    return 0;
}

static int open_actor(struct ranks_context *context, struct actor *actor)
{
    const struct shape *shape = context->argument;
    void *area;
    if (shape->engine != NULL)
        setenv("WEFT_NET", shape->engine, 1);
    *actor = (struct actor){.context = context,
                            .image = calloc(1, sizeof(struct area)),
                            .models = calloc((size_t)context->num_ranks, sizeof(struct area))};
    CHECK(actor->image != NULL && actor->models != NULL, "no memory");
    actor->comm = ranks_comm(context, WEFT_ARGS(weft_comm_config, .num_nodes = shape->num_nodes));
    actor->stream = ranks_stream(context);
    actor->other_stream = ranks_stream(context);
    CHECK_OK(weft_heap_alloc(actor->comm, sizeof(struct area), &area));
    actor->area = area;
    CHECK_OK(weft_memory_copy(actor->comm, area, actor->image, sizeof(struct area)));
    return meet(actor);
}

static int close_actor(struct actor *actor)
{
    if (meet(actor))
        return 1;
    free(actor->models);
    free(actor->image);
    return 0;
}

/* ---------------------------------------------------------------- random operations */

static uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static unsigned char source_byte(int32_t rank, int round, size_t i)
{
    return (unsigned char)(i * 7 + i / 251 + (size_t)rank * 31 + (size_t)round * 13 + 1);
}

enum kind { PUT, ADD, FETCH_ADD, NUM_KINDS };

struct operation {
    enum kind kind;
    int32_t target;
    size_t begin,
        bytes; /* of a put: from here in source to here in the row, in its own part of it */
    int word;
    uint64_t add;
};

/* Operation i of a rank's round writes to part i of its row, so that no two of a round overlap. */
static struct operation draw(const struct actor *actor, int32_t rank, int round, int i)
{
    const size_t part = ROW_BYTES / NUM_OPERATIONS;
    uint64_t state = (uint64_t)rank * 1000003 + (uint64_t)(round * NUM_OPERATIONS + i) * 7919;
    struct operation operation = {
        .kind = (enum kind)(next_random(&state) % NUM_KINDS),
        .target = (int32_t)(next_random(&state) % (uint64_t)num_ranks_of(actor)),
        .begin = (size_t)i * part,
        .bytes = next_random(&state) % part,
        .word = (int)(next_random(&state) % NUM_WORDS),
        .add = next_random(&state)};
    operation.begin += next_random(&state) % (part - operation.bytes);
    if (i == 0) { /* a long one, that the others' parts are cut off from */
        operation.kind = PUT;
        operation.bytes = part;
        operation.begin = 0;
    }
    return operation;
}

static int perform(struct actor *actor, const struct operation *operation)
{
    struct area *area = actor->area;
    const int32_t own = actor->context->rank;
    weft_result result;
    if (operation->kind == PUT)
        result = weft_rma_put(actor->comm,
                              WEFT_ARGS(weft_rma_args, .dst = &area->rows[own][operation->begin],
                                        .src = &area->source[operation->begin],
                                        .bytes = operation->bytes, .rank = operation->target),
                              actor->stream);
    else if (operation->kind == ADD)
        result = weft_rma_add(actor->comm,
                              WEFT_ARGS(weft_rma_args, .word = &area->words[operation->word],
                                        .value = operation->add, .rank = operation->target),
                              actor->stream);
    else
        result = weft_rma_fetch_add(actor->comm,
                                    WEFT_ARGS(weft_rma_args, .before = &area->tickets[0],
                                              .word = &area->words[operation->word],
                                              .value = operation->add, .rank = operation->target),
                                    actor->stream);
    CHECK_OK(result);
    return 0;
}

static void model(struct actor *actor, int32_t rank, int round, const struct operation *operation)
{
    struct area *target = &actor->models[operation->target];
    if (operation->kind != PUT)
        target->words[operation->word] += operation->add;
    else
        for (size_t i = operation->begin; i < operation->begin + operation->bytes; i++)
            target->rows[rank][i] = source_byte(rank, round, i);
}

static void model_round(struct actor *actor, int round)
{
    for (int32_t rank = 0; rank < num_ranks_of(actor); rank++)
        for (int i = 0; i < NUM_OPERATIONS; i++) {
            const struct operation operation = draw(actor, rank, round, i);
            model(actor, rank, round, &operation);
        }
}

static int set_source(struct actor *actor, int round)
{
    for (size_t i = 0; i < ROW_BYTES; i++)
        actor->image->source[i] = source_byte(actor->context->rank, round, i);
    CHECK_OK(weft_memory_copy(actor->comm, actor->area->source, actor->image->source, ROW_BYTES));
    return 0;
}

static int check_own(struct actor *actor, int round)
{
    const struct area *model = &actor->models[actor->context->rank];
    CHECK_OK(weft_memory_copy(actor->comm, actor->image, actor->area, sizeof(struct area)));
    for (int32_t rank = 0; rank < num_ranks_of(actor); rank++)
        CHECK(memcmp(actor->image->rows[rank], model->rows[rank], ROW_BYTES) == 0,
              "row of rank %d in round %d", rank, round);
    for (int word = 0; word < NUM_WORDS; word++)
        CHECK(actor->image->words[word] == model->words[word], "word %d in round %d", word, round);
    return 0;
}

/* Any part of any row of any rank. */
static int check_gets(struct actor *actor, int round)
{
    uint64_t state = (uint64_t)actor->context->rank * NUM_ROUNDS + (uint64_t)round;
    for (int i = 0; i < NUM_OPERATIONS; i++) {
        const int32_t rank = (int32_t)(next_random(&state) % (uint64_t)num_ranks_of(actor));
        const int32_t row = (int32_t)(next_random(&state) % (uint64_t)num_ranks_of(actor));
        const size_t begin = next_random(&state) % ROW_BYTES;
        const size_t bytes = next_random(&state) % (ROW_BYTES - begin);
        CHECK_OK(weft_rma_get(actor->comm,
                              WEFT_ARGS(weft_rma_args, .dst = actor->area->fetched,
                                        .src = &actor->area->rows[row][begin], .bytes = bytes,
                                        .rank = rank),
                              actor->stream));
        CHECK_OK(weft_stream_synchronize(actor->stream));
        CHECK_OK(weft_memory_copy(actor->comm, actor->image->fetched, actor->area->fetched, bytes));
        CHECK(memcmp(actor->image->fetched, &actor->models[rank].rows[row][begin], bytes) == 0,
              "get of %zu bytes of row %d of rank %d in round %d", bytes, row, rank, round);
    }
    return 0;
}

static int play_round(struct actor *actor, int round)
{
    if (set_source(actor, round))
        return 1;
    for (int i = 0; i < NUM_OPERATIONS; i++) {
        const struct operation operation = draw(actor, actor->context->rank, round, i);
        if (perform(actor, &operation))
            return 1;
    }
    CHECK_OK(weft_rma_quiet(actor->comm, actor->stream));
    model_round(actor, round);
    return meet(actor) || check_own(actor, round) || meet(actor) || check_gets(actor, round) ||
           meet(actor);
}

static int play_randomly(struct ranks_context *context)
{
    struct actor actor;
    if (open_actor(context, &actor))
        return 1;
    for (int round = 0; round < NUM_ROUNDS; round++)
        if (play_round(&actor, round))
            return 1;
    return close_actor(&actor);
}

/* ---------------------------------------------------------------- signals */

static unsigned char letter_byte(uint64_t number, size_t i)
{
    return (unsigned char)(number + 1 + i);
}

static int prepare_drafts(struct actor *actor)
{
    for (uint64_t number = 0; number < NUM_LETTERS; number++)
        for (size_t i = 0; i < LETTER_BYTES; i++)
            actor->image->drafts[number][i] = letter_byte(number, i);
    CHECK_OK(weft_memory_copy(actor->comm, actor->area->drafts, actor->image->drafts,
                              sizeof actor->image->drafts));
    return 0;
}

static int check_archive(struct actor *actor)
{
    CHECK_OK(weft_memory_copy(actor->comm, actor->image->archive, actor->area->archive,
                              sizeof actor->image->archive));
    for (uint64_t number = 0; number < NUM_LETTERS; number++)
        for (size_t i = 0; i < LETTER_BYTES; i++)
            CHECK(actor->image->archive[number][i] == letter_byte(number, i),
                  "byte %zu of letter %d", i, (int)number);
    return 0;
}

/* On the stream, within the rank. */
static int copy_letter(struct actor *actor, unsigned char *to, const unsigned char *from)
{
    CHECK_OK(weft_rma_put(actor->comm,
                          WEFT_ARGS(weft_rma_args, .dst = to, .src = from, .bytes = LETTER_BYTES,
                                    .rank = actor->context->rank),
                          actor->stream));
    return 0;
}

/* With its signal, or with one after a fence. */
static int send_letter(struct actor *actor, uint64_t number, int32_t to)
{
    struct area *area = actor->area;
    weft_stream *stream = actor->stream;
    if (number % 2 == 0) {
        CHECK_OK(weft_rma_put_signal(actor->comm,
                                     WEFT_ARGS(weft_rma_args, .dst = area->letter,
                                               .src = area->draft, .bytes = LETTER_BYTES,
                                               .word = &area->num_letters, .value = 1, .rank = to),
                                     stream));
        return 0;
    }
    CHECK_OK(weft_rma_put(actor->comm,
                          WEFT_ARGS(weft_rma_args, .dst = area->letter, .src = area->draft,
                                    .bytes = LETTER_BYTES, .rank = to),
                          stream));
    CHECK_OK(weft_rma_fence(actor->comm, stream));
    CHECK_OK(weft_rma_signal(
        actor->comm, WEFT_ARGS(weft_rma_args, .word = &area->num_letters, .value = 1, .rank = to),
        stream));
    return 0;
}

/* Every rank writes to the next one, which says when it has read; all is enqueued at once. */
static int write_letters(struct ranks_context *context)
{
    struct actor actor;
    const int32_t next = (context->rank + 1) % context->num_ranks;
    const int32_t previous = (context->rank + context->num_ranks - 1) % context->num_ranks;
    if (open_actor(context, &actor) || prepare_drafts(&actor))
        return 1;
    for (uint64_t i = 0; i < NUM_LETTERS; i++) {
        struct area *area = actor.area;
        if (copy_letter(&actor, area->draft, area->drafts[i]))
            return 1;
        CHECK_OK(weft_rma_wait_until(actor.comm,
                                     WEFT_ARGS(weft_rma_args, .word = &area->num_read, .value = i),
                                     actor.stream));
        if (send_letter(&actor, i, next))
            return 1;
        CHECK_OK(weft_rma_wait_until(
            actor.comm, WEFT_ARGS(weft_rma_args, .word = &area->num_letters, .value = i + 1),
            actor.stream));
        if (copy_letter(&actor, area->archive[i], area->letter))
            return 1;
        CHECK_OK(weft_rma_signal(
            actor.comm,
            WEFT_ARGS(weft_rma_args, .word = &area->num_read, .value = 1, .rank = previous),
            actor.stream));
    }
    CHECK_OK(weft_stream_synchronize(actor.stream));
    return check_archive(&actor) || close_actor(&actor);
}

/* What one stream waits for, another one adds. */
static int signal_itself(struct ranks_context *context)
{
    struct actor actor;
    if (open_actor(context, &actor))
        return 1;
    CHECK_OK(weft_rma_wait_until(
        actor.comm, WEFT_ARGS(weft_rma_args, .word = &actor.area->num_letters, .value = 7),
        actor.other_stream));
    for (int i = 0; i < 7; i++) {
        CHECK_OK(weft_rma_signal(actor.comm,
                                 WEFT_ARGS(weft_rma_args, .word = &actor.area->num_letters,
                                           .value = 1, .rank = context->rank),
                                 actor.stream));
        CHECK_OK(weft_stream_synchronize(actor.stream));
    }
    CHECK_OK(weft_stream_synchronize(actor.other_stream));
    return close_actor(&actor);
}

/* ---------------------------------------------------------------- tickets */

static int compare_words(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Every rank takes tickets from the last one's word: each gets others. */
static int draw_tickets(struct ranks_context *context)
{
    struct actor actor;
    const size_t num_tickets = (size_t)context->num_ranks * NUM_TICKETS;
    uint64_t *all = calloc(num_tickets, sizeof *all);
    if (open_actor(context, &actor))
        return 1;
    for (int i = 0; i < NUM_TICKETS; i++)
        CHECK_OK(weft_rma_fetch_add(actor.comm,
                                    WEFT_ARGS(weft_rma_args, .before = &actor.area->tickets[i],
                                              .word = &actor.area->words[0], .value = 1,
                                              .rank = context->num_ranks - 1),
                                    actor.stream));
    if (meet(&actor))
        return 1;
    CHECK_OK(weft_memory_copy(actor.comm, actor.image->tickets, actor.area->tickets,
                              sizeof actor.image->tickets));
    CHECK_OK(weft_comm_host_all_gather(actor.comm, actor.image->tickets,
                                       sizeof actor.image->tickets, all));
    qsort(all, num_tickets, sizeof *all, compare_words);
    for (size_t i = 0; i < num_tickets; i++)
        CHECK(all[i] == i, "ticket %zu is %d", i, (int)all[i]);
    free(all);
    return close_actor(&actor);
}

/* ---------------------------------------------------------------- tests */

/* That the host sees what others have put, after they have been quiet and met, is an order that
 * goes through their processes: the thread sanitizer does not see it. */
enum who_reads { READ_BY_PROGRAMS, READ_BY_THE_HOST };

static int is_seen(enum who_reads reader)
{
#ifdef __SANITIZE_THREAD__
    return reader == READ_BY_PROGRAMS;
#else
    (void)reader;
    return 1;
#endif
}

static void run_on_all_shapes(rank_function function, enum who_reads reader)
{
    static const struct shape shapes[] = {{4, 1, NULL},  {1, 1, NULL},  {2, 2, "tcp"},
                                          {4, 2, "tcp"}, {3, 3, "tcp"}, {2, 2, "ucx"},
                                          {4, 2, "ucx"}, {3, 3, "ucx"}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape shape = shapes[i];
        if (shape.engine != NULL && (!is_seen(reader) || !tests_network_is_there(shape.engine)))
            continue;
        assert_int_equal(ranks_run(RANKS_PROCESSES, shape.num_ranks, function, &shape), 0);
    }
}

TEST_CALL(random_operations_do_what_a_model_does,
          run_on_all_shapes(play_randomly, READ_BY_THE_HOST))
TEST_CALL(signals_come_after_the_bytes, run_on_all_shapes(write_letters, READ_BY_PROGRAMS))
TEST_CALL(a_stream_signals_another_of_its_rank, run_on_all_shapes(signal_itself, READ_BY_PROGRAMS))
TEST_CALL(concurrent_fetch_adds_give_distinct_values,
          run_on_all_shapes(draw_tickets, READ_BY_PROGRAMS))
