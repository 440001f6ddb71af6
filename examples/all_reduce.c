/* SPDX-License-Identifier: MIT */
/* Sums a vector over all ranks, twice: in the heap, which ranks reach anyhow, and in other memory that they
 * register. Run it with: weft run -n 4 -- all_reduce */
#include <stdio.h>
#include <stdlib.h>

#include "weft.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != WEFT_OK) {                                                                   \
            fprintf(stderr, "%s: %s\n", #call, weft_last_error());                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { COUNT = 10000 };

/* Memory of the machine, which may be a GPU, is not for the host: values go through `values`. */
static void sum_in(void *vector, weft_comm *comm, weft_coll *coll, weft_stream *stream)
{
    static float values[COUNT];
    const int32_t rank = weft_comm_rank(comm), num_ranks = weft_comm_num_ranks(comm);
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)((rank + 1) * (i % 100));
    CHECK(weft_memory_copy(comm, vector, values, sizeof values));
    CHECK(weft_coll_all_reduce(coll,
                               WEFT_ARGS(weft_coll_args, .send = vector, .recv = vector,
                                         .count = COUNT, .dtype = WEFT_FP32, .op = WEFT_SUM),
                               stream));
    CHECK(weft_stream_synchronize(stream));
    CHECK(weft_memory_copy(comm, values, vector, sizeof values));
    const int32_t sum_of_factors = num_ranks * (num_ranks + 1) / 2;
    for (int i = 0; i < COUNT; i++) {
        if (values[i] == (float)(sum_of_factors * (i % 100)))
            continue;
        fprintf(stderr, "rank %d: element %d is %g\n", rank, i, values[i]);
        exit(1);
    }
}

int main(void)
{
    weft_comm *comm;
    weft_coll *coll;
    weft_stream *stream;
    CHECK(weft_comm_create_from_env(NULL, &comm));
    CHECK(weft_coll_create(comm, NULL, &coll));
    CHECK(weft_stream_create(comm, &stream));

    void *in_heap;
    CHECK(weft_heap_alloc(comm, COUNT * sizeof(float), &in_heap));
    sum_in(in_heap, comm, coll, stream);

    /* An application would register what it has from cudaMalloc, say. What others cannot reach is right all the
     * same, by a copy. */
    void *own;
    int32_t is_direct;
    CHECK(weft_memory_alloc(comm, COUNT * sizeof(float), &own));
    CHECK(weft_memory_register(comm, own, COUNT * sizeof(float), &is_direct));
    sum_in(own, comm, coll, stream);
    printf("rank %d: both sums are right; registered memory is %s\n", weft_comm_rank(comm),
           is_direct ? "reached where it is" : "staged");

    CHECK(weft_memory_unregister(comm, own));
    CHECK(weft_memory_free(comm, own));
    CHECK(weft_heap_free(comm, in_heap));
    CHECK(weft_stream_destroy(stream));
    CHECK(weft_coll_destroy(coll));
    CHECK(weft_comm_destroy(comm));
    return 0;
}
