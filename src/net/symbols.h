/* SPDX-License-Identifier: MIT */
/* The functions of a library that is loaded at run time. */
#pragma once

#include <dlfcn.h>
#include <stddef.h>

struct weft__symbol {
    const char *name;
    size_t offset; /* of its pointer in the struct of functions */
};

/* `symbols` ends with one that has no name. Returns the first that the library lacks; NULL: it has
 * all, and the struct is filled. */
static inline const char *weft__find_symbols(void *library, const struct weft__symbol *symbols,
                                             void *functions)
{
    for (; symbols->name != NULL; symbols++) {
        void **function = (void **)(void *)((char *)functions + symbols->offset);
        *function = dlsym(library, symbols->name);
        if (*function == NULL)
            break;
    }
    return symbols->name;
}
