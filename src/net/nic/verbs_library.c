/* SPDX-License-Identifier: MIT */
#include "net/nic/verbs_library.h"

#include <pthread.h>
#include <stdio.h>

#include "comm/host/error.h"
#include "net/symbols.h"

static struct {
    pthread_once_t once;
    struct weft__verbs functions;
    char obstacle[256]; /* empty: they are loaded */
} library = {.once = PTHREAD_ONCE_INIT};

#define SYMBOL(result, name, arguments) {#name, offsetof(struct weft__verbs, name)},
static const struct weft__symbol symbols_of_ibverbs[] = {WEFT__IBV_FUNCTIONS(SYMBOL){0}};
static const struct weft__symbol symbols_of_mlx5[] = {WEFT__MLX5_FUNCTIONS(SYMBOL){0}};
#undef SYMBOL

/* They stay loaded: libibverbs keeps drivers that it has loaded itself. */
static void load_one(const char *file, const struct weft__symbol *symbols)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *reason = dlerror();
        snprintf(library.obstacle, sizeof(library.obstacle), "%s cannot be loaded: %s", file,
                 reason != NULL ? reason : "no reason is known");
        return;
    }
    const char *lack = weft__find_symbols(handle, symbols, &library.functions);
    if (lack != NULL)
        snprintf(library.obstacle, sizeof(library.obstacle),
                 "%s lacks %s: a later version of rdma-core has it", file, lack);
}

static void load(void)
{
    load_one("libibverbs.so.1", symbols_of_ibverbs);
    if (library.obstacle[0] == '\0')
        load_one("libmlx5.so.1", symbols_of_mlx5);
}

weft_result weft__verbs_load(const struct weft__verbs **verbs)
{
    pthread_once(&library.once, load);
    if (library.obstacle[0] != '\0')
        return weft__error(WEFT_ERROR_UNSUPPORTED, "%s", library.obstacle);
    *verbs = &library.functions;
    return WEFT_OK;
}
