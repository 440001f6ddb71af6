/* SPDX-License-Identifier: MIT */
/* Memory of one rank: weft_memory_alloc, free and copy. */
#include <string.h>

#include "harness/cmocka.h"
#include "harness/memory.h"
#include "harness/ranks.h"
#include "oracle/ep_data.h"

enum { ALIGNMENT = 256, NUM_BLOCKS = 9 };

static const size_t sizes[NUM_BLOCKS] = {1, 3, 255, 256, 257, 4096, 100001, 1 << 20, 3000000};

static int check_zeroed(weft_comm *comm, const void *block, size_t bytes)
{
    char *content = tests_alloc(bytes);
    size_t num_wrong = 0;
    memset(content, 1, bytes);
    CHECK_OK(weft_memory_copy(comm, content, block, bytes));
    for (size_t i = 0; i < bytes; i++)
        num_wrong += content[i] != 0;
    CHECK(num_wrong == 0, "%zu of %zu bytes are not 0", num_wrong, bytes);
    tests_free(content);
    return 0;
}

/* Twice, so that the second time memory is zeroed that was in use. */
TEST_IN_BOTH_MODES(memory_is_zeroed_and_aligned, 3)
{
    void *blocks[NUM_BLOCKS];
    char *garbage = tests_alloc(sizes[NUM_BLOCKS - 1]);
    memset(garbage, 0xa5, sizes[NUM_BLOCKS - 1]);
    weft_comm *const comm = ranks_comm(context, NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < NUM_BLOCKS; i++) {
            CHECK_OK(weft_memory_alloc(comm, sizes[i], &blocks[i]));
            CHECK((uintptr_t)blocks[i] % ALIGNMENT == 0, "%p is not aligned", blocks[i]);
            if (check_zeroed(comm, blocks[i], sizes[i]))
                return 1;
            CHECK_OK(weft_memory_copy(comm, blocks[i], garbage, sizes[i]));
        }
        for (int i = 0; i < NUM_BLOCKS; i++)
            CHECK_OK(weft_memory_free(comm, blocks[i]));
    }
    tests_free(garbage);
    return 0;
}

/* From the host through two places of the machine, and back. */
static int copy_through(struct ranks_context *context, weft_comm *comm, void *first, void *second,
                        size_t bytes)
{
    char *sent = tests_alloc(bytes), *received = tests_alloc(bytes);
    ep_data_bytes(bytes, context->rank, sent, bytes);
    CHECK_OK(weft_memory_copy(comm, first, sent, bytes));
    CHECK_OK(weft_memory_copy(comm, second, first, bytes));
    CHECK_OK(weft_memory_copy(comm, received, second, bytes));
    CHECK(memcmp(sent, received, bytes) == 0, "%zu bytes differ", bytes);
    tests_free(sent);
    tests_free(received);
    return 0;
}

/* Between the host, memory of the rank, the heap, and the heap of the next rank. */
TEST_IN_BOTH_MODES(copies_go_everywhere, 3)
{
    void *own, *other, *heap;
    const size_t bytes = 100001;
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK_OK(weft_memory_alloc(comm, bytes, &own));
    CHECK_OK(weft_memory_alloc(comm, bytes + 1, &other));
    CHECK_OK(weft_heap_alloc(comm, 2 * bytes, &heap));
    void *of_next =
        (char *)weft_heap_ptr(comm, heap, (context->rank + 1) % context->num_ranks) + bytes;
    if (copy_through(context, comm, own, (char *)other + 1, bytes) ||
        copy_through(context, comm, own, heap, bytes) ||
        copy_through(context, comm, heap, own, bytes) ||
        copy_through(context, comm, own, of_next, bytes) ||
        copy_through(context, comm, heap, of_next, bytes))
        return 1;
    CHECK_OK(weft_memory_copy(comm, NULL, NULL, 0));
    CHECK_OK(weft_memory_free(comm, own));
    CHECK_OK(weft_memory_free(comm, other));
    CHECK_OK(weft_comm_host_barrier(comm));
    CHECK_OK(weft_heap_free(comm, heap));
    return 0;
}

/* fuzz_api_arguments has wrong arguments. */
TEST_ON_RANKS(too_much_and_nothing, RANKS_THREADS, 1)
{
    char byte = 0;
    void *ptr = &byte;
    weft_comm *const comm = ranks_comm(context, NULL);
    CHECK_ERROR(weft_memory_alloc(comm, SIZE_MAX / 2, &ptr), WEFT_ERROR_OUT_OF_MEMORY, "bytes");
    CHECK(ptr == &byte, "an output was written by a call that failed");
    CHECK_OK(weft_memory_alloc(comm, 0, &ptr));
    CHECK(ptr == NULL, "0 bytes are at %p", ptr);
    CHECK_OK(weft_memory_free(comm, ptr));
    return 0;
}
