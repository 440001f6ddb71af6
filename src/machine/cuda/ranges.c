/* SPDX-License-Identifier: MIT */
/* NVTX is headers of CUDA, in a package of their own. They look for the tool with the first call;
 * there is no library. */
#include "machine/cuda/ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <inttypes.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>

static nvtxDomainHandle_t domain; /* NULL: there is no tool */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_domain(void)
{
    domain = nvtxDomainCreateA("weft");
}

void weft__cuda_range_begin(const struct weft__launch *launch)
{
    char text[128];
    pthread_once(&once, make_domain);
    if (domain == NULL)
        return;
    snprintf(text, sizeof text, "%s #%" PRIu64 ", %" PRIu64 " bytes, %s",
             weft__call_name((int32_t)launch->call), launch->sequence, launch->num_bytes,
             launch->program->name);
    const nvtxEventAttributes_t attributes = {.version = NVTX_VERSION,
                                              .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                              .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                              .payload.ullValue = launch->num_bytes,
                                              .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                              .message.ascii = text};
    nvtxDomainRangePushEx(domain, &attributes);
}

void weft__cuda_range_end(void)
{
    if (domain != NULL)
        nvtxDomainRangePop(domain);
}
#else
void weft__cuda_range_begin(const struct weft__launch *launch)
{
    (void)launch;
}

void weft__cuda_range_end(void)
{
}
#endif
