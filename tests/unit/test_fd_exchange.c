/* SPDX-License-Identifier: MIT */
/* Ranks of a host give each other descriptors; some have none to give. */
#include <dirent.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/host/error.h"
#include "comm/rendezvous/fd_exchange.h"
#include "comm/rendezvous/identity.h"
#include "harness/cmocka.h"

enum { NUM_RANKS = 4, NUM_ROUNDS = 20, KEY = 77, OTHER_HOST = NUM_RANKS - 1 };

static pthread_barrier_t between_rounds;

struct member {
    struct weft__fd_exchange exchange;
    struct weft__status status;
    int own; /* the end of a pipe, by which others know whose descriptor it is */
    const struct member *all;
    int num_wrong;
    unsigned char marks[2 * NUM_RANKS];
};

/* A rank gives a descriptor in every round but one in three. */
static int gives(int32_t rank, int32_t round)
{
    return (rank + round) % 3 != 0;
}

static int is_same_file(int a, int b)
{
    struct stat of_a, of_b;
    return fstat(a, &of_a) == 0 && fstat(b, &of_b) == 0 && of_a.st_ino == of_b.st_ino &&
           of_a.st_dev == of_b.st_dev;
}

static int count_wrong(const struct member *self, const int *fds)
{
    int num_wrong = 0;
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        const int is_neighbour = rank != self->exchange.rank &&
                                 (rank == OTHER_HOST) == (self->exchange.rank == OTHER_HOST);
        const int is_given = is_neighbour && gives(rank, self->exchange.round);
        num_wrong += (fds[rank] >= 0) != is_given;
        if (fds[rank] >= 0) {
            num_wrong += !is_same_file(fds[rank], self->all[rank].own);
            close(fds[rank]);
        }
    }
    return num_wrong;
}

static void *take_part(void *argument)
{
    struct member *self = argument;
    int fds[NUM_RANKS];
    for (self->exchange.round = 1; self->exchange.round <= NUM_ROUNDS; self->exchange.round++) {
        const int fd = gives(self->exchange.rank, self->exchange.round) ? self->own : -1;
        self->num_wrong += weft__fd_exchange(&self->exchange, fd, fds) != WEFT_OK;
        self->num_wrong += count_wrong(self, fds);
        pthread_barrier_wait(&between_rounds);
    }
    return NULL;
}

static void open_member(struct member *members, struct weft__identity *table, int32_t rank)
{
    struct member *self = &members[rank];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[1]);
    assert_ok(weft__identity_of_process(&table[rank]));
    assert_ok(weft__status_init(&self->status, NUM_RANKS));
    self->own = ends[0];
    self->all = members;
    self->exchange = (struct weft__fd_exchange){.rank = rank,
                                                .num_ranks = NUM_RANKS,
                                                .timeout_ms = 10000,
                                                .key = KEY,
                                                .table = table,
                                                .status = &self->status,
                                                .marks = self->marks};
    assert_ok(weft__fd_socket_open(table[rank].socket_id, &self->exchange.socket_fd));
}

TEST(descriptors_come_from_those_that_give_any)
{
    static struct member members[NUM_RANKS];
    static struct weft__identity table[NUM_RANKS];
    pthread_t threads[NUM_RANKS];
    pthread_barrier_init(&between_rounds, NULL, NUM_RANKS);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        open_member(members, table, rank);
    table[OTHER_HOST].host_key++;
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        assert_int_equal(pthread_create(&threads[rank], NULL, take_part, &members[rank]), 0);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        pthread_join(threads[rank], NULL);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++) {
        assert_int_equal(members[rank].num_wrong, 0);
        close(members[rank].own);
        close(members[rank].exchange.socket_fd);
        weft__status_destroy(&members[rank].status);
    }
    pthread_barrier_destroy(&between_rounds);
}

/* ---------------------------------------------------------------- letters that are not believed */

enum { TAKER = 0, GIVER = 1, STRANGER = 2, NUM_THREE = 3, SOON_MS = 1 };

static void open_three(struct member *members, struct weft__identity *table)
{
    for (int32_t rank = 0; rank < NUM_THREE; rank++) {
        open_member(members, table, rank);
        members[rank].exchange.num_ranks = NUM_THREE;
        members[rank].exchange.round = 1;
    }
}

static void close_three(struct member *members)
{
    for (int32_t rank = 0; rank < NUM_THREE; rank++) {
        close(members[rank].own);
        close(members[rank].exchange.socket_fd);
        weft__status_destroy(&members[rank].status);
    }
}

/* A rank's letters lie in the sockets of the others when it gives up. */
static void send_letters(struct member *member, const struct weft__identity *table)
{
    int fds[NUM_THREE];
    struct weft__fd_exchange exchange = member->exchange;
    exchange.table = table;
    exchange.timeout_ms = SOON_MS;
    assert_int_equal(weft__fd_exchange(&exchange, member->own, fds), WEFT_ERROR_TIMEOUT);
}

static int count_descriptors(void)
{
    int num_fds = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory) != NULL)
        num_fds++;
    closedir(directory);
    return num_fds;
}

/* Who is on another host by the table of the one that takes has nothing to give to it, whatever it
 * believes. */
TEST(letters_of_who_is_no_neighbour_are_thrown_away)
{
    static struct member members[NUM_RANKS];
    static struct weft__identity table[NUM_RANKS], of_stranger[NUM_RANKS];
    int fds[NUM_THREE];
    const int num_before = count_descriptors();
    open_three(members, table);
    memcpy(of_stranger, table, sizeof table);
    table[STRANGER].host_key++;
    send_letters(&members[STRANGER], of_stranger);
    send_letters(&members[GIVER], table);
    assert_ok(weft__fd_exchange(&members[TAKER].exchange, -1, fds));
    assert_int_equal(fds[STRANGER], -1);
    assert_true(is_same_file(fds[GIVER], members[GIVER].own));
    close(fds[GIVER]);
    close_three(members);
    assert_int_equal(count_descriptors(), num_before); /* with what came in the letter */
}

/* The kernel says who has sent a letter. */
TEST(letters_of_other_processes_are_thrown_away)
{
    static struct member members[NUM_RANKS];
    static struct weft__identity table[NUM_RANKS], as_they_are[NUM_RANKS];
    int fds[NUM_THREE];
    for (int i = 0; i < 2; i++) {
        open_three(members, table);
        memcpy(as_they_are, table, sizeof table);
        table[STRANGER].pid += i == 0;
        table[STRANGER].uid += i == 1;
        send_letters(&members[STRANGER], as_they_are);
        send_letters(&members[GIVER], as_they_are);
        members[TAKER].exchange.timeout_ms = SOON_MS;
        assert_int_equal(weft__fd_exchange(&members[TAKER].exchange, -1, fds), WEFT_ERROR_TIMEOUT);
        assert_string_equal(weft__last_error(), "rank 2 did not share its memory within 1 ms");
        close_three(members);
    }
}

/* A process without free numbers gets the letter alone. */
TEST(descriptors_that_do_not_arrive_are_an_error)
{
    static struct member members[NUM_RANKS];
    static struct weft__identity table[NUM_RANKS];
    struct rlimit before, none;
    int fds[NUM_THREE];
    open_three(members, table);
    send_letters(&members[GIVER], table);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    const weft_result result = weft__fd_exchange(&members[TAKER].exchange, -1, fds);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(result, WEFT_ERROR_SYSTEM);
    assert_non_null(strstr(weft__last_error(), "rank 0 cannot map the memory of rank 1"));
    assert_non_null(strstr(weft__last_error(), "RLIMIT_NOFILE"));
    close_three(members);
}
