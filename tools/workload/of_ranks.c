/* SPDX-License-Identifier: MIT */
#include "workload/of_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "workload/failure.h"

/* The values of all ranks, rank after rank, if the result is WEFT_OK; to be freed. */
static void *gather(weft_comm *comm, const void *own, size_t bytes, weft_result *result)
{
    const int32_t num_ranks = weft_comm_num_ranks(comm);
    void *all = malloc(bytes * (size_t)num_ranks);
    *result = all ? weft_comm_host_all_gather(comm, own, bytes, all)
                  : LACKS_MEMORY("%zu bytes of each of %d ranks", bytes, num_ranks);
    return all;
}

weft_result slowest_of_ranks(weft_comm *comm, double *samples, size_t num_samples,
                             struct figures *figures)
{
    const size_t num_all = num_samples * (size_t)weft_comm_num_ranks(comm);
    weft_result result;
    double *all = gather(comm, samples, num_samples * sizeof *samples, &result);
    for (size_t k = 0; k < num_all && result == WEFT_OK; k++) {
        const size_t i = k % num_samples;
        samples[i] = all[k] > samples[i] ? all[k] : samples[i];
    }
    if (result == WEFT_OK)
        *figures = figures_of(samples, num_samples);
    free(all);
    return result;
}

weft_result sum_of_ranks(weft_comm *comm, int64_t *numbers, size_t num_numbers)
{
    const size_t num_all = num_numbers * (size_t)weft_comm_num_ranks(comm);
    weft_result result;
    int64_t *all = gather(comm, numbers, num_numbers * sizeof *numbers, &result);
    if (result == WEFT_OK)
        memset(numbers, 0, num_numbers * sizeof *numbers);
    for (size_t k = 0; k < num_all && result == WEFT_OK; k++)
        numbers[k % num_numbers] += all[k];
    free(all);
    return result;
}
