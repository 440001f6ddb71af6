/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>

#include "comm/comm.h"

weft_result weft__comm_agree(weft_comm *comm, weft_result mine, const char *what)
{
    int32_t *results = malloc((size_t)comm->num_ranks * sizeof(*results));
    if (results == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for %d ranks", comm->num_ranks);
    char message[WEFT__MAX_TEXT_BYTES];
    snprintf(message, sizeof(message), "%s", weft__last_error());
    const int32_t my_result = mine;
    weft_result result = weft__comm_all_gather(comm, &my_result, sizeof(my_result), results);
    if (mine != WEFT_OK)
        result = weft__error(mine, "%s", message);
    for (int32_t rank = 0; result == WEFT_OK && rank < comm->num_ranks; rank++)
        if (results[rank] != WEFT_OK)
            result = weft__error((weft_result)results[rank], "rank %d cannot %s: %s", rank, what,
                                 weft_result_string((weft_result)results[rank]));
    free(results);
    return result;
}
