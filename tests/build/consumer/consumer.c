/* SPDX-License-Identifier: MIT */
/* What a user of the installed library writes: one rank alone, C or C++. */
#include <stdio.h>
#include <string.h>
#include <weft.h>

static int fail(const char *call)
{
    fprintf(stderr, "%s: %s\n", call, weft_last_error());
    return 1;
}

int main(void)
{
    weft_comm *comm = NULL;
    if (weft_comm_create_from_env(NULL, &comm) != WEFT_OK)
        return fail("weft_comm_create_from_env");

    void *memory = NULL;
    if (weft_heap_alloc(comm, 4096, &memory) != WEFT_OK)
        return fail("weft_heap_alloc");
    char bytes[4096];
    memset(bytes, 1, sizeof bytes);
    if (weft_memory_copy(comm, memory, bytes, sizeof bytes) != WEFT_OK)
        return fail("weft_memory_copy");
    if (weft_heap_ptr(comm, memory, 0) != memory || weft_comm_num_ranks(comm) != 1)
        return fail("one rank alone");

    weft_stream *stream = NULL;
    if (weft_stream_create(comm, &stream) != WEFT_OK ||
        weft_comm_barrier(comm, stream) != WEFT_OK || weft_stream_synchronize(stream) != WEFT_OK ||
        weft_stream_destroy(stream) != WEFT_OK)
        return fail("barrier");
    if (weft_heap_free(comm, memory) != WEFT_OK || weft_comm_destroy(comm) != WEFT_OK)
        return fail("destroy");
    printf("weft %u\n", (unsigned)weft_version());
    return 0;
}
