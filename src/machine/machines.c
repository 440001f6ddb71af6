/* SPDX-License-Identifier: MIT */
/* Which machine a communicator runs on. */
#include <stdatomic.h>
#include <stdlib.h>

#include "comm/host/log.h"
#include "comm/host/settings.h"
#include "machine/host.h"

uint64_t weft__stream_new_id(void)
{
    static _Atomic uint64_t last_id;
    return atomic_fetch_add(&last_id, 1) + 1;
}

static _Thread_local int is_in_stream_call;

void weft__run_stream_call(void (*function)(void *argument), void *argument)
{
    is_in_stream_call = 1;
    function(argument);
    is_in_stream_call = 0;
}

weft_result weft__check_may_wait(const char *call)
{
    if (!is_in_stream_call)
        return WEFT_OK;
    return weft__invalid("%s is called in a function of weft_stream_call, which must not wait",
                         call);
}

weft_result weft__machine_duplicate(weft_comm *comm, const void *src, uint64_t bytes, void **copy)
{
    const struct weft__machine *machine = weft__machine_of(comm);
    WEFT__TRY(machine->alloc(comm, bytes, copy));
    const weft_result result = machine->copy(comm, *copy, src, bytes);
    if (result == WEFT_OK)
        return WEFT_OK;
    machine->free(comm, *copy);
    *copy = NULL;
    return result;
}

weft_result weft__machine_zero(weft_comm *comm, void *memory, uint64_t bytes)
{
    const uint64_t most_bytes = 256 << 10, some_bytes = bytes < most_bytes ? bytes : most_bytes;
    void *zeroes = calloc(1, some_bytes > 0 ? some_bytes : 1);
    weft_result result = WEFT_OK;
    WEFT__CHECK_MEMORY(zeroes, "no memory to zero %llu bytes", (unsigned long long)bytes);
    for (uint64_t done = 0; done < bytes && result == WEFT_OK; done += some_bytes)
        result =
            weft__machine_of(comm)->copy(comm, (char *)memory + done, zeroes,
                                         bytes - done < some_bytes ? bytes - done : some_bytes);
    free(zeroes);
    return result;
}

static weft_result read_setting(weft_machine *wanted)
{
    int index = 0;
    WEFT__TRY(weft__setting_word(WEFT__SETTING_MACHINE, &index));
    *wanted = (weft_machine)index;
    return WEFT_OK;
}

weft_result weft__machine_choose(weft_machine wanted, const struct weft__machine **machine)
{
    if (wanted == WEFT_MACHINE_AUTO)
        WEFT__TRY(read_setting(&wanted));
    *machine = wanted == WEFT_MACHINE_CPU ? NULL : weft__cuda_machine();
    if (*machine != NULL)
        return WEFT_OK;
    if (wanted == WEFT_MACHINE_CUDA)
        return weft__error(WEFT_ERROR_UNSUPPORTED, "machine cuda cannot be used: %s",
                           weft__last_error());
    if (wanted == WEFT_MACHINE_AUTO)
        weft__log(WEFT__LOG_INFO, WEFT__LOG_NO_RANK, "machine cpu is used, not cuda: %s",
                  weft__last_error());
    *machine = &weft__host_machine;
    return WEFT_OK;
}
