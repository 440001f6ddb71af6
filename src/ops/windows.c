/* SPDX-License-Identifier: MIT */
#include "ops/windows.h"

#include <stdlib.h>

/* The heaps come first; other windows are for collectives alone. */
static weft_result make_table(weft_comm *comm, struct weft__windows *windows)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    const uint64_t row_bytes = (uint64_t)comm->num_ranks * sizeof(char *);
    windows->max_windows = comm->num_ranks <= WEFT_COLL_MAX_RANKS ? machine->max_windows : 1;
    WEFT__TRY(machine->alloc(comm, (uint64_t)windows->max_windows * row_bytes, &windows->table));
    return machine->copy(comm, windows->table, weft__heap_bases(comm->heap), row_bytes);
}

weft_result weft__windows_create(weft_comm *comm)
{
    struct weft__windows *windows = calloc(1, sizeof *windows);
    if (windows == NULL)
        return weft__error(WEFT_ERROR_OUT_OF_MEMORY, "no memory for a communicator");
    comm->windows = windows;
    return make_table(comm, windows);
}

void weft__windows_destroy(weft_comm *comm)
{
    struct weft__windows *windows = comm->windows;
    if (windows == NULL)
        return;
    weft__machine_of(comm)->free(comm, windows->table);
    free(windows);
    comm->windows = NULL;
}
