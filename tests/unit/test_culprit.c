/* SPDX-License-Identifier: MIT */
/* Who is to blame for a wait that failed. Rank 0 asks; what the others wait for is made up, and the
 * last rank never answers: it is only a connection to the rendezvous, like that of a stopped
 * process, or of one that leaves in that moment. */
#include <poll.h>
#include <string.h>

#include "comm/failure/culprit.h"
#include "comm/rendezvous/connect_retry.h"
#include "comm/rendezvous/identity.h"
#include "comm/rendezvous/link.h"
#include "harness/cmocka.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 4, ASKER = 0, SILENT = NUM_RANKS - 1, EXCHANGE = 256, OTHER_EXCHANGE = 512 };

enum { NOBODY = WEFT__NOBODY };

enum deed {
    WAITS,         /* for script.waits_for, or for nobody */
    LEAVES,        /* after such a wait has failed */
    GATHERS,       /* is in an all-gather of the host, which the silent rank never joins */
    WAITS_IN_OTHER /* as WAITS, in another exchange */
};

enum last_deed { STAYS_SILENT, LEAVES_WHEN_ASKED };

struct script {
    struct {
        enum deed deed;
        int32_t waits_for;
    } ranks[NUM_RANKS];
    int32_t culprit;
    int state;
    const char *story;
    int32_t also_waits_for[NUM_RANKS]; /* ASKER: nobody else */
    enum last_deed last_deed;
};

/* As much of a communicator as it takes to ask and to answer. */
static int open_comm(struct ranks_context *context, weft_comm *comm)
{
    struct weft__meeting_point point;
    struct weft__identity table[NUM_RANKS];
    *comm = (weft_comm){.rank = context->rank, .num_ranks = NUM_RANKS, .timeout_ms = 60000};
    struct weft__hello hello = {
        .rank = comm->rank, .num_ranks = NUM_RANKS, .timeout_ms = comm->timeout_ms};
    const struct weft__link_options options = {.point = &point,
                                               .hello = &hello,
                                               .status = &comm->status,
                                               .waits = &comm->waits,
                                               .standing = &comm->standing};
    weft__waits_init(&comm->waits);
    weft__standing_init(&comm->standing);
    CHECK_OK(weft__meeting_point_from_id(&point, &context->id));
    CHECK_OK(weft__identity_of_process(&hello.identity));
    CHECK_OK(weft__status_init(&comm->status, NUM_RANKS));
    CHECK_OK(weft__link_open(&options, table, &comm->link));
    return 0;
}

static void close_comm(weft_comm *comm)
{
    if (comm->link != NULL)
        weft__link_close(comm->link);
    weft__status_destroy(&comm->status);
    weft__waits_destroy(&comm->waits);
    weft__standing_destroy(&comm->standing);
}

/* With the first question unread, as far as the asker can tell, and a wait for rank 2 that has
 * failed. */
static int leave_when_asked(struct weft__wire *wire)
{
    const struct weft__wait_list last = {.num_waits = 1,
                                         .waits = {{.rank = 2, .exchange = EXCHANGE}}};
    struct pollfd input = {.fd = wire->fd, .events = POLLIN};
    struct weft__frame frame = {.type = WEFT__FRAME_ALIVE};
    enum weft__wire_result result = WEFT__WIRE_EMPTY;
    while (result == WEFT__WIRE_EMPTY || frame.type != WEFT__FRAME_QUESTION) {
        CHECK(poll(&input, 1, 60000) == 1, "nobody asks");
        result = weft__wire_receive(wire, &frame);
        CHECK(result == WEFT__WIRE_OK || result == WEFT__WIRE_EMPTY, "%d", result);
    }
    struct weft__message *message =
        weft__message_create(WEFT__FRAME_GOODBYE, &last, sizeof last, NULL, 0);
    CHECK(message != NULL, "no memory");
    result = weft__wire_send(wire, message);
    weft__message_release(message);
    CHECK(result == WEFT__WIRE_OK, "%d", result);
    return 0;
}

static int be_silent(struct ranks_context *context)
{
    const struct script *script = context->argument;
    struct weft__meeting_point point;
    struct weft__wire wire;
    struct weft__identity server, table[NUM_RANKS];
    CHECK_OK(weft__meeting_point_from_id(&point, &context->id));
    struct weft__hello hello = {.magic = WEFT__HELLO_MAGIC,
                                .version = WEFT__HELLO_VERSION,
                                .rank = SILENT,
                                .num_ranks = NUM_RANKS,
                                .timeout_ms = 60000};
    memcpy(hello.nonce, point.nonce, sizeof(hello.nonce));
    const struct weft__connection_request request = {.point = &point, .hello = &hello};
    CHECK_OK(weft__connect(&request, &wire, &server, table));
    ranks_barrier(context);
    const int failed = script->last_deed == LEAVES_WHEN_ASKED && leave_when_asked(&wire);
    ranks_barrier(context);
    weft__wire_close(&wire);
    return failed;
}

/* Until the rendezvous knows of what the rank has done. */
static void await_deed(weft_comm *comm, int32_t rank, enum deed deed)
{
    struct weft__wait_list waits = {.num_waits = 0};
    while (deed == LEAVES && atomic_load(&comm->status.rank_states[rank]) != WEFT__RANK_LEFT)
        sched_yield();
    while (deed == GATHERS && waits.num_waits == 0 &&
           weft__comm_ask(comm, rank, &(struct weft__wait){.exchange = EXCHANGE}, INT64_MAX,
                          &waits) == WEFT__ASK_ANSWERED)
        sched_yield();
}

struct entries {
    struct weft__wait_entry entries[2];
    int num_entries;
};

static void begin_wait(struct entries *entries, weft_comm *comm, struct weft__wait wait)
{
    struct weft__wait_entry *entry = &entries->entries[entries->num_entries++];
    entry->wait = wait;
    weft__waits_begin(&comm->waits, entry);
}

/* What the script says of this rank; of the asker only the wait that is not its direct one. */
static void begin_waits(struct entries *entries, weft_comm *comm, const struct script *script)
{
    const int32_t rank = script->ranks[comm->rank].waits_for;
    const int32_t other_rank = script->also_waits_for[comm->rank];
    const enum deed deed = script->ranks[comm->rank].deed;
    const uint64_t exchange = deed == WAITS_IN_OTHER ? OTHER_EXCHANGE : EXCHANGE;
    entries->num_entries = 0;
    if (other_rank != ASKER)
        begin_wait(entries, comm, (struct weft__wait){.rank = other_rank, .exchange = exchange});
    if (comm->rank != ASKER && rank != NOBODY)
        begin_wait(entries, comm, (struct weft__wait){.rank = rank, .exchange = exchange});
}

static void end_waits(struct entries *entries, weft_comm *comm, enum weft__wait_end how)
{
    for (int i = entries->num_entries - 1; i >= 0; i--)
        weft__waits_end(&comm->waits, &entries->entries[i], how);
    entries->num_entries = 0;
}

static int ask(struct ranks_context *context, weft_comm *comm, const struct script *script)
{
    (void)context;
    struct weft__culprit culprit;
    struct entries entries;
    const struct weft__wait direct = {.rank = script->ranks[ASKER].waits_for, .exchange = EXCHANGE};
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        await_deed(comm, rank, script->ranks[rank].deed);
    begin_waits(&entries, comm, script);
    weft__comm_find_culprit(comm, &direct, &culprit);
    end_waits(&entries, comm, WEFT__WAIT_CAME);
    CHECK(culprit.rank == script->culprit && (int)culprit.state == script->state,
          "rank %d, state %d: %s", culprit.rank, (int)culprit.state, culprit.story);
    CHECK(strcmp(culprit.story, script->story) == 0, "%s", culprit.story);
    /* Whoever asks for this rank from now on hears of its wait. */
    CHECK(weft__waits_find(&comm->waits, EXCHANGE).waits[0].rank == direct.rank,
          "the wait that failed is not kept");
    return 0;
}

/* Comes back when the asker is done. */
static void answer(struct ranks_context *context, weft_comm *comm, const struct script *script)
{
    struct entries entries;
    begin_waits(&entries, comm, script);
    if (script->ranks[comm->rank].deed == LEAVES) {
        end_waits(&entries, comm, WEFT__WAIT_FAILED);
        weft__link_close(comm->link);
        comm->link = NULL;
    }
    ranks_barrier(context);
    ranks_barrier(context);
    end_waits(&entries, comm, WEFT__WAIT_CAME);
}

static void *gather(void *argument)
{
    weft_comm *comm = argument;
    char all[NUM_RANKS];
    struct weft__share share = {.send = "x", .bytes = 1, .recv = all};
    (void)weft__link_all_gather(comm->link, &share); /* until the silent rank dies */
    return NULL;
}

static int play(struct ranks_context *context)
{
    const struct script *script = context->argument;
    weft_comm comm;
    pthread_t thread;
    int failed = 0;
    if (context->rank == SILENT)
        return be_silent(context);
    if (open_comm(context, &comm) != 0)
        return 1;
    const int is_gathering = script->ranks[context->rank].deed == GATHERS &&
                             pthread_create(&thread, NULL, gather, &comm) == 0;
    if (context->rank == ASKER) {
        ranks_barrier(context);
        failed = ask(context, &comm, script);
        ranks_barrier(context);
    } else {
        answer(context, &comm, script);
    }
    if (is_gathering)
        pthread_join(thread, NULL);
    close_comm(&comm);
    return failed;
}

#define DEEDS(a, x, b, y, c, z) .ranks = {{a, x}, {b, y}, {c, z}}
#define ALSO(rank, other)       .also_waits_for[rank] = other
#define BLAMED(rank, how)       .culprit = rank, .state = WEFT__CULPRIT_##how

/* Each has the deeds of all ranks, and the one that the asker blames. */
static const struct script scripts[] = {
    /* The awaited rank itself. */
    {DEEDS(WAITS, 1, WAITS, NOBODY, WAITS, NOBODY), BLAMED(1, NOT_WAITING),
     .story = "rank 1 waits for no rank"},
    {DEEDS(WAITS, SILENT, WAITS, SILENT, WAITS, SILENT), BLAMED(SILENT, SILENT),
     .story = "rank 3 does not answer"},
    {DEEDS(WAITS, 1, LEAVES, NOBODY, WAITS, NOBODY), BLAMED(1, LEFT),
     .story = "rank 1 has left the communicator"},
    /* The end of a chain. */
    {DEEDS(WAITS, 1, WAITS, 2, WAITS, SILENT), BLAMED(SILENT, SILENT),
     .story = "rank 1 itself waits for rank 2, that for rank 3; rank 3 does not answer"},
    {DEEDS(WAITS, 2, WAITS, NOBODY, WAITS_IN_OTHER, 1), BLAMED(1, NOT_WAITING),
     .story = "rank 2 itself waits for rank 1; rank 1 waits for no rank"},
    /* Work of its own. */
    {DEEDS(WAITS, 1, WAITS, 2, WAITS, 2), ALSO(2, 1), BLAMED(2, AT_OWN_WORK),
     .story = "rank 1 itself waits for rank 2; rank 2 waits for its own work"},
    {DEEDS(WAITS, 1, WAITS, 1, WAITS, 1), ALSO(1, SILENT), BLAMED(SILENT, SILENT),
     .story = "rank 1 itself waits for rank 3; rank 3 does not answer"},
    /* Behind a rank that gave up and left. */
    {DEEDS(WAITS, 1, LEAVES, 2, WAITS, SILENT), BLAMED(SILENT, SILENT),
     .story = "rank 1 itself waits for rank 2, that for rank 3; rank 3 does not answer"},
    /* Behind a rank that leaves in that moment. */
    {DEEDS(WAITS, 1, WAITS, SILENT, WAITS, NOBODY), .last_deed = LEAVES_WHEN_ASKED,
     BLAMED(2, NOT_WAITING),
     .story = "rank 1 itself waits for rank 3, that for rank 2; rank 2 waits for no rank"},
    /* A circle blames the awaited rank. */
    {DEEDS(WAITS, 1, WAITS, 2, WAITS, ASKER), BLAMED(1, IN_CIRCLE),
     .story = "the ranks wait for each other in a circle"},
    /* A circle blames the odd one. */
    {DEEDS(WAITS, 1, WAITS, 2, WAITS_IN_OTHER, ASKER), BLAMED(2, IN_CIRCLE),
     .story =
         "the ranks wait for each other in a circle, rank 2 in another operation than the others"},
    /* A rank that waits for the circle is asked too. */
    {DEEDS(WAITS, 2, WAITS, 2, WAITS_IN_OTHER, ASKER), BLAMED(2, IN_CIRCLE),
     .story =
         "the ranks wait for each other in a circle, rank 2 in another operation than the others"},
    /* A circle blames whom all others wait for. One exchange has several operations: who calls
     * the wrong one waits for all, or for any, and all wait for it. */
    {DEEDS(WAITS, 1, WAITS, 2, WAITS, 1), BLAMED(1, IN_CIRCLE),
     .story =
         "the ranks wait for each other in a circle, rank 1 in another operation than the others"},
    {DEEDS(WAITS, 1, WAITS, ASKER, WAITS, 1), ALSO(1, 2), BLAMED(1, IN_CIRCLE),
     .story =
         "the ranks wait for each other in a circle, rank 1 in another operation than the others"},
    /* The asker itself, whichever of the others it asks first. */
    {DEEDS(WAITS, 2, WAITS, ASKER, WAITS, ASKER), BLAMED(ASKER, IN_CIRCLE),
     .story =
         "the ranks wait for each other in a circle, rank 0 in another operation than the others"},
    {DEEDS(WAITS, 1, WAITS, ASKER, WAITS, ASKER), ALSO(ASKER, 2), BLAMED(ASKER, IN_CIRCLE),
     .story =
         "the ranks wait for each other in a circle, rank 0 in another operation than the others"},
    /* A circle of two tells that they differ. */
    {DEEDS(WAITS, 1, WAITS_IN_OTHER, ASKER, WAITS, NOBODY), BLAMED(1, IN_CIRCLE),
     .story = "the ranks wait for each other in a circle, rank 1 in another operation than rank 0"},
    /* Behind one of several waits. The first wait alone would lead back. */
    {DEEDS(WAITS, 1, WAITS, ASKER, WAITS, NOBODY), ALSO(1, SILENT), BLAMED(SILENT, SILENT),
     .story = "rank 1 itself waits for rank 3; rank 3 does not answer"},
    {DEEDS(WAITS, 1, WAITS, ASKER, WAITS, NOBODY), ALSO(1, 2), BLAMED(2, NOT_WAITING),
     .story = "rank 1 itself waits for rank 2; rank 2 waits for no rank"},
    {DEEDS(WAITS, 1, LEAVES, 2, WAITS, 1), ALSO(1, SILENT), BLAMED(SILENT, SILENT),
     .story = "rank 1 itself waits for rank 3; rank 3 does not answer"},
    /* Behind another wait of the asker. */
    {DEEDS(WAITS, 1, WAITS, ASKER, WAITS, NOBODY), ALSO(ASKER, SILENT), BLAMED(SILENT, SILENT),
     .story = "rank 1 itself waits for rank 0, that for rank 3; rank 3 does not answer"},
    /* The silent rank rather than one that does not wait. */
    {DEEDS(WAITS, 1, WAITS, 2, WAITS, NOBODY), ALSO(1, SILENT), BLAMED(SILENT, SILENT),
     .story = "rank 1 itself waits for rank 3; rank 3 does not answer"},
    /* A circle of several waits blames the awaited rank. */
    {DEEDS(WAITS, 1, WAITS, ASKER, WAITS, ASKER), ALSO(ASKER, 2), ALSO(1, 2), ALSO(2, 1),
     BLAMED(1, IN_CIRCLE), .story = "the ranks wait for each other in a circle"},
    /* Behind a rank in an all gather of the host. The rendezvous knows who is missing there. */
    {DEEDS(GATHERS, 1, GATHERS, NOBODY, GATHERS, NOBODY), BLAMED(SILENT, SILENT),
     .story = "rank 1 itself waits for rank 3; rank 3 does not answer"},
};

TEST(each_script_has_its_culprit)
{
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (ranks_run(RANKS_THREADS, NUM_RANKS, play, &scripts[i]) != 0)
            fail_msg("script %zu: %s", i, scripts[i].story);
}
