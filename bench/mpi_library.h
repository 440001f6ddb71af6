/* SPDX-License-Identifier: MIT */
/* Which MPI this is measured with. */
#pragma once

#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* "Open MPI v4.1.4": the first words of what the library says of itself, fit for JSON. */
static inline void name_mpi_library(char *name, size_t name_bytes)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c == '"' || *c == '\\')
            *c = ' ';
    snprintf(name, name_bytes, "%.*s", (int)name_bytes - 1, text);
}
