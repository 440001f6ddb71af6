/* SPDX-License-Identifier: MIT */
#include "net/ucx_library.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "comm/host/error.h"
#include "net/symbols.h"

enum { MIN_MAJOR = 1, MIN_MINOR = 13 };

static struct {
    pthread_once_t once;
    struct weft__ucx functions;
    char obstacle[256]; /* empty: it is loaded */
} library = {.once = PTHREAD_ONCE_INIT};

#define SYMBOL(name) {#name, offsetof(struct weft__ucx, name)},
static const struct weft__symbol symbols[] = {WEFT__UCX_FUNCTIONS(SYMBOL){0}};
#undef SYMBOL

static void look_up(void *handle)
{
    unsigned major = 0, minor = 0, release = 0;
    const char *lack = weft__find_symbols(handle, symbols, &library.functions);
    if (lack != NULL) {
        snprintf(library.obstacle, sizeof(library.obstacle), "UCX lacks %s", lack);
        return;
    }
    library.functions.ucp_get_version(&major, &minor, &release);
    if (major != MIN_MAJOR || minor < MIN_MINOR)
        snprintf(library.obstacle, sizeof(library.obstacle),
                 "UCX is version %u.%u; it must be %d.%d or a later one of %d", major, minor,
                 MIN_MAJOR, MIN_MINOR, MIN_MAJOR);
}

/* As it is loaded, UCX takes over the signals of crashes. They are the program's. */
static void load(void)
{
    static const int crashes[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    enum { NUM_CRASHES = sizeof(crashes) / sizeof(crashes[0]) };
    struct sigaction actions[NUM_CRASHES];
    for (int index = 0; index < NUM_CRASHES; index++)
        sigaction(crashes[index], NULL, &actions[index]);
    /* It stays loaded: its threads and hooks would outlive it. */
    void *handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL)
        snprintf(library.obstacle, sizeof(library.obstacle), "UCX cannot be loaded: %s", dlerror());
    else
        look_up(handle);
    for (int index = 0; index < NUM_CRASHES; index++)
        sigaction(crashes[index], &actions[index], NULL);
}

weft_result weft__ucx_load(const struct weft__ucx **ucx)
{
    pthread_once(&library.once, load);
    if (library.obstacle[0] != '\0')
        return weft__error(WEFT_ERROR_UNSUPPORTED, "%s", library.obstacle);
    *ucx = &library.functions;
    return WEFT_OK;
}
