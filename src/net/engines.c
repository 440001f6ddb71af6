/* SPDX-License-Identifier: MIT */
/* Which engine a net has. */
#include <stdio.h>
#include <string.h>

#include "comm/host/error.h"
#include "comm/host/settings.h"
#include "net/devices.h"
#include "net/net_internal.h"
#include "net/nic/lacks.h"

static const struct weft__net_engine *const engines[] = {&weft__net_tcp, &weft__net_ucx};
enum { NUM_ENGINES = sizeof(engines) / sizeof(engines[0]) };

static weft_result choose_named(const char *name, const struct weft__net_engine **engine)
{
    for (size_t index = 0; index < NUM_ENGINES; index++)
        if (strcmp(name, engines[index]->name) == 0) {
            *engine = engines[index];
            return (*engine)->probe();
        }
    return weft__invalid("the network engine is \"%.32s\"; it must be auto, tcp or ucx", name);
}

/* UCX where there is RDMA: over TCP it ends processes whose peers die (docs/network.md). */
static weft_result choose_automatically(const struct weft__net_config *config,
                                        const struct weft__net_engine **engine, char *reason,
                                        size_t reason_bytes)
{
    char device[WEFT__NET_DEVICE_NAME_BYTES];
    if (config->initiator == WEFT__NET_BY_MODEL) {
        snprintf(reason, reason_bytes, "since it carries the packets of the model of a NIC");
        *engine = &weft__net_tcp;
        return WEFT_OK;
    }
    const int has_rdma = weft__net_find_rdma("/sys", "/dev", device);
    *engine = &weft__net_ucx;
    if (config->demand == WEFT__NET_RDMA) {
        snprintf(reason, reason_bytes, "since RDMA is demanded");
        return weft__net_ucx.probe();
    }
    if (has_rdma && weft__net_ucx.probe() == WEFT_OK) {
        snprintf(reason, reason_bytes, "since the RDMA device %s is active", device);
        return WEFT_OK;
    }
    if (has_rdma)
        snprintf(reason, reason_bytes, "though the RDMA device %s is active: %s", device,
                 weft__last_error());
    else
        snprintf(reason, reason_bytes, "since no RDMA device is active");
    *engine = &weft__net_tcp;
    return WEFT_OK;
}

static weft_result refuse_gpu(void)
{
    char device[WEFT__NIC_NAME_BYTES], lacks[WEFT__NIC_LACKS_BYTES];
    weft__nic_find_lacks(&weft__sysfs_of_host, device, lacks);
    if (lacks[0] != '\0')
        return weft__error(WEFT_ERROR_UNSUPPORTED, "WEFT_NET_INITIATOR is gpu; here %s", lacks);
    return weft__error(WEFT_ERROR_UNSUPPORTED,
                       "WEFT_NET_INITIATOR is gpu; %s could serve it, but programs on GPUs do not "
                       "post to a NIC yet: it must be host or model",
                       device);
}

static weft_result check_initiator(const struct weft__net_config *config)
{
    if (config->initiator == WEFT__NET_BY_GPU)
        return refuse_gpu();
    if (config->initiator == WEFT__NET_BY_MODEL && !weft__net_is_automatic(config) &&
        strcmp(config->engine, weft__net_tcp.name) != 0)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "WEFT_NET_INITIATOR is model, whose packets keep their order over "
                           "engine tcp alone; WEFT_NET is %.32s",
                           config->engine);
    if (config->initiator == WEFT__NET_BY_MODEL && config->demand == WEFT__NET_RDMA)
        return weft__error(WEFT_ERROR_UNSUPPORTED,
                           "WEFT_NET_INITIATOR is model, whose packets go over engine tcp, which "
                           "has no RDMA; WEFT_NET_TRANSPORT is rdma: it must be any");
    return WEFT_OK;
}

weft_result weft__net_choose(const struct weft__net_config *config,
                             const struct weft__net_engine **engine, char *reason,
                             size_t reason_bytes)
{
    WEFT__TRY(check_initiator(config));
    if (config->custom == NULL && weft__net_is_automatic(config))
        return choose_automatically(config, engine, reason, reason_bytes);
    snprintf(reason, reason_bytes, "as it was asked for");
    *engine = config->custom;
    return config->custom != NULL ? WEFT_OK : choose_named(config->engine, engine);
}

int weft__net_is_automatic(const struct weft__net_config *config)
{
    return config->engine == NULL || strcmp(config->engine, "auto") == 0;
}

weft_result weft__net_choice(const struct weft__net_config *config, const char **chosen,
                             char *reason, size_t reason_bytes)
{
    const struct weft__net_engine *engine = NULL;
    weft_result result = weft__net_choose(config, &engine, reason, reason_bytes);
    if (result == WEFT_OK && engine != NULL)
        *chosen = engine->name;
    return result;
}

weft_result weft__net_read_settings(struct weft__net_config *config)
{
    int engine, demand, gpudirect, initiator;
    WEFT__TRY(weft__setting_word(WEFT__SETTING_NET, &engine));
    WEFT__TRY(weft__setting_word(WEFT__SETTING_NET_TRANSPORT, &demand));
    WEFT__TRY(weft__setting_word(WEFT__SETTING_NET_GPUDIRECT, &gpudirect));
    WEFT__TRY(weft__setting_word(WEFT__SETTING_NET_INITIATOR, &initiator));
    config->engine = weft__settings[WEFT__SETTING_NET].words[engine];
    config->devices = weft__setting_text(WEFT__SETTING_NET_DEVICES);
    config->demand = (enum weft__net_demand)demand;
    config->gpudirect = (enum weft__net_gpudirect)gpudirect;
    config->initiator = (enum weft__net_initiator)initiator;
    return WEFT_OK;
}

weft_result weft__net_probe(const char *name, char *reason, size_t reason_bytes)
{
    const struct weft__net_engine *engine;
    weft_result result = choose_named(name, &engine);
    snprintf(reason, reason_bytes, "%s", result == WEFT_OK ? "" : weft__last_error());
    return result;
}
