/* SPDX-License-Identifier: MIT */
/* Who sees a signal of the cpu machine sees the rows that were copied before it: they are streamed
 * past the cache, which a release alone does not order. Without the fence some signals come too
 * early, but only while both threads have a core: on a busy machine the test may miss it. */
#include <pthread.h>

#include "harness/cmocka.h"
#include "launch/programs.h"
#include "machine/host.h"

/* Rows just long enough to be streamed; each is written again and again, with larger numbers. */
enum {
    NUM_ROWS = 64,
    ROW_NUMBERS = WEFT__CPU_MIN_STREAM_BYTES / sizeof(uint64_t),
    LINE_NUMBERS = 8,
    NUM_SIGNALS = 300000
};

static _Alignas(64) uint64_t rows[NUM_ROWS][ROW_NUMBERS], source[ROW_NUMBERS];
static _Alignas(64) uint64_t word;

static enum wp_status copy_and_signal(struct wp_warp *warp, const void *args)
{
    (void)args;
    for (uint64_t number = 1; number <= NUM_SIGNALS; number++) {
        for (size_t i = 0; i < ROW_NUMBERS; i++)
            source[i] = number;
        weft__cpu_row_copy(rows[number % NUM_ROWS], source, sizeof source);
        wp_signal(warp, 0, &word, number);
    }
    return WP_STATUS_OK;
}

static void *look(void *argument)
{
    uint64_t *num_early = argument;
    uint64_t number;
    do {
        number = __atomic_load_n(&word, __ATOMIC_ACQUIRE);
        const uint64_t *row = rows[number % NUM_ROWS];
        int is_early = 0;
        for (size_t i = 0; i < ROW_NUMBERS; i += LINE_NUMBERS) /* the last lines first */
            is_early |=
                __atomic_load_n(&row[ROW_NUMBERS - LINE_NUMBERS - i], __ATOMIC_RELAXED) < number;
        *num_early += (uint64_t)is_early;
    } while (number < NUM_SIGNALS);
    return NULL;
}

TEST(rows_are_there_when_the_signal_is)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* it takes the newer rows, which are looked at as well, for a race */
#endif
    weft_comm *comm;
    weft_stream *stream;
    weft_unique_id id;
    pthread_t thread;
    uint64_t num_early = 0;
    const struct weft__program program = {"signals", copy_and_signal};
    assert_ok(weft_unique_id_create(&id));
    assert_ok(weft_comm_create(&id, 0, 1, NULL, &comm));
    const struct weft__launch request = {.program = &program,
                                         .args = &program,
                                         .args_bytes = sizeof program,
                                         .grid = {.num_blocks = 1, .num_warps = 1},
                                         .comm = comm,
                                         .on_failure = weft__program_failed};
    assert_ok(weft_stream_create(comm, &stream));
    assert_int_equal(pthread_create(&thread, NULL, look, &num_early), 0);
    assert_ok(stream->machine->launch(stream, &request));
    assert_ok(weft_stream_synchronize(stream));
    pthread_join(thread, NULL);
    assert_int_equal(num_early, 0);
    assert_ok(weft_stream_destroy(stream));
    assert_ok(weft_comm_destroy(comm));
}
