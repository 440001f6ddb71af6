/* SPDX-License-Identifier: MIT */
#include "workload/of_ranks.h"

#include <stdlib.h>
#include <string.h>

weft_result slowest_of_ranks(weft_comm *comm, double *samples, size_t num_samples,
                             struct figures *figures)
{
    const size_t num_all = num_samples * (size_t)weft_comm_num_ranks(comm);
    double *all = malloc(num_all * sizeof *all);
    if (!all)
        return WEFT_ERROR_OUT_OF_MEMORY;
    const weft_result result =
        weft_host_all_gather(comm, samples, num_samples * sizeof *samples, all);
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
    int64_t *all = malloc(num_all * sizeof *all);
    if (!all)
        return WEFT_ERROR_OUT_OF_MEMORY;
    const weft_result result =
        weft_host_all_gather(comm, numbers, num_numbers * sizeof *numbers, all);
    if (result == WEFT_OK)
        memset(numbers, 0, num_numbers * sizeof *numbers);
    for (size_t k = 0; k < num_all && result == WEFT_OK; k++)
        numbers[k % num_numbers] += all[k];
    free(all);
    return result;
}
