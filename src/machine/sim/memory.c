/* SPDX-License-Identifier: MIT */
/* free, as the linker's --wrap has it called: memory that a rank has freed may be given to another,
 * and what happened there before is no conflict with what happens then. */
#include <malloc.h>

#include "machine/sim/world.h"

void __real_free(void *memory); /* NOLINT: the linker's names */
void __wrap_free(void *memory); /* NOLINT */

void __wrap_free(void *memory)
{
    if (memory != NULL && sim_world != NULL && sim_current() != NULL)
        sim_shadow_forget(memory, malloc_usable_size(memory));
    __real_free(memory);
}

void sim_free(void *memory)
{
    __real_free(memory);
}
