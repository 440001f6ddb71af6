/* SPDX-License-Identifier: MIT */
#include "slowest.h"

#include <stdlib.h>

#include "try.h"

static int gather_samples(weft_comm *comm, const double *samples, size_t num_samples, double *all)
{
    WEFT_TRY(weft_host_all_gather(comm, samples, num_samples * sizeof(double), all));
    return 0;
}

int slowest_of_ranks(weft_comm *comm, double *samples, size_t num_samples, struct figures *figures)
{
    const size_t num_all = num_samples * (size_t)weft_comm_num_ranks(comm);
    double *all = malloc(num_all * sizeof(double));
    if (all == NULL) {
        perror("malloc");
        return -1;
    }
    const int result = gather_samples(comm, samples, num_samples, all);
    for (size_t k = 0; k < num_all && result == 0; k++) {
        const size_t i = k % num_samples;
        samples[i] = all[k] > samples[i] ? all[k] : samples[i];
    }
    if (result == 0)
        *figures = figures_of(samples, num_samples);
    free(all);
    return result;
}
