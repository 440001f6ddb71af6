/* SPDX-License-Identifier: MIT */
/* Ranks of a host give each other descriptors; some have none to give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/fd_exchange.h"
#include "comm/identity.h"

enum { NUM_RANKS = 4, NUM_ROUNDS = 20, KEY = 77, OTHER_HOST = NUM_RANKS - 1 };

static pthread_barrier_t between_rounds;

struct member {
    struct weft__fd_exchange exchange;
    struct weft__status status;
    int own; /* the end of a pipe, by which others know whose descriptor it is */
    const struct member *all;
    int num_wrong;
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
    assert_int_equal(weft__identity_of_process(&table[rank]), WEFT_OK);
    table[rank].host_key += rank == OTHER_HOST;
    assert_int_equal(weft__status_init(&self->status, NUM_RANKS), WEFT_OK);
    self->own = ends[0];
    self->all = members;
    self->exchange = (struct weft__fd_exchange){.rank = rank,
                                                .num_ranks = NUM_RANKS,
                                                .timeout_ms = 10000,
                                                .key = KEY,
                                                .table = table,
                                                .status = &self->status};
    assert_int_equal(weft__fd_socket_open(table[rank].socket_id, &self->exchange.socket_fd),
                     WEFT_OK);
}

static void descriptors_come_from_those_that_give_any(void **state)
{
    static struct member members[NUM_RANKS];
    static struct weft__identity table[NUM_RANKS];
    pthread_t threads[NUM_RANKS];
    (void)state;
    pthread_barrier_init(&between_rounds, NULL, NUM_RANKS);
    for (int32_t rank = 0; rank < NUM_RANKS; rank++)
        open_member(members, table, rank);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_come_from_those_that_give_any),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
