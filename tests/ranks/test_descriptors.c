/* SPDX-License-Identifier: MIT */
/* A program has closed standard input, output or error. Its output must not go into a descriptor
 * that the library has opened. */
#include <fcntl.h>
#include <unistd.h>

#include "harness/cmocka.h"
#include "harness/machine.h"
#include "harness/ranks.h"

enum { NUM_RANKS = 4, NUM_STANDARD = 3, NUM_SETS = 1 << NUM_STANDARD };

/* Closes standard streams of the process, and keeps copies for later. */
static void close_standard(int set, int kept[NUM_STANDARD])
{
    for (int fd = 0; fd < NUM_STANDARD; fd++) {
        kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, NUM_STANDARD);
        if (set & 1 << fd)
            close(fd);
    }
}

static void open_standard(const int kept[NUM_STANDARD])
{
    for (int fd = 0; fd < NUM_STANDARD; fd++) {
        dup2(kept[fd], fd);
        close(kept[fd]);
    }
}

static int count_taken(int set)
{
    int num_taken = 0;
    for (int fd = 0; fd < NUM_STANDARD; fd++)
        num_taken += (set & 1 << fd) && fcntl(fd, F_GETFD) >= 0;
    return num_taken;
}

/* Uses everything that opens descriptors: a rendezvous, processes that watch each other, shared
 * heaps, and a network between nodes. */
static weft_result use_all(struct ranks_context *context, weft_comm **comm)
{
    const weft_comm_config config = {.size = sizeof config, .num_nodes = 2};
    weft_unique_id *id = context->shared;
    weft_stream *stream = NULL;
    void *memory = NULL;
    weft_result result = context->rank == 0 ? weft_unique_id_create(id) : WEFT_OK;
    ranks_barrier(context);
    if (result == WEFT_OK)
        result = weft_comm_create(id, context->rank, context->num_ranks, &config, comm);
    if (result == WEFT_OK)
        result = weft_heap_alloc(*comm, 4 << 20, &memory);
    if (result == WEFT_OK)
        result = weft_stream_create(*comm, &stream);
    if (result == WEFT_OK)
        result = weft_comm_barrier(*comm, stream);
    if (result == WEFT_OK)
        result = weft_stream_synchronize(stream);
    if (stream != NULL)
        weft_stream_destroy(stream);
    return result;
}

static int work_without(struct ranks_context *context)
{
    const int set = *(const int *)context->argument;
    int kept[NUM_STANDARD];
    weft_comm *comm = NULL;
    close_standard(set, kept);
    const weft_result result = use_all(context, &comm);
    const int num_taken = count_taken(set);
    open_standard(kept);
    CHECK_OK(result);
    CHECK_OK(weft_comm_destroy(comm));
    CHECK(num_taken == 0, "set %d: %d of the numbers are open", set, num_taken);
    return 0;
}

/* Skipped on GPUs: CUDA's driver opens descriptors under any number. */
TEST(standard_descriptors_that_are_closed_stay_free)
{
    if (tests_on_cuda())
        return;
    for (int set = 1; set < NUM_SETS; set++) {
        const struct ranks_options options = {.mode = RANKS_PROCESSES,
                                              .id = RANKS_ID_NONE,
                                              .num_ranks = NUM_RANKS,
                                              RANKS_ARGUMENT(&set),
                                              .shared_bytes = sizeof(weft_unique_id)};
        assert_int_equal(ranks_run_with(&options, work_without), 0);
    }
}
