/* SPDX-License-Identifier: MIT */
#include "net/nic/qp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "comm/host/error.h"
#include "net/nic/syndrome.h"

enum { LOG_ENTRIES = 0, MAX_LOG_READS = 4 }; /* more READs wait in the NIC, in any case */

static uint32_t log2_of(uint32_t power)
{
    return (uint32_t)__builtin_ctz(power);
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The firmware's answer says more than the error, where there is one. */
static weft_result refuse(const struct weft__nic_qp *qp, const char *what, int error,
                          const uint8_t *bytes)
{
    const struct weft__devx_answer answer = weft__devx_decode_answer(bytes);
    char text[WEFT__DEVX_STATUS_BYTES];
    weft__devx_status_text(&answer, text);
    return weft__error(WEFT_ERROR_SYSTEM, "%s refuses to %s of the queue to rank %d: %s",
                       qp->device->name, what, qp->config.peer,
                       answer.status != 0 ? text : strerror(error));
}

/* ---------------------------------------------------------------- creation */

static weft_result check_config(const struct weft__nic_device *device,
                                const struct weft__nic_qp_config *config)
{
    const uint64_t page_of_units = (uint64_t)1 << config->sends->log_page,
                   page_of_entry = (uint64_t)1 << config->completions->log_page;
    const uint32_t max_log = smaller(device->limits.max_log_depth, log2_of(WEFT__NIC_MAX_DEPTH));
    if (config->depth == 0 || (config->depth & (config->depth - 1)) != 0 ||
        log2_of(config->depth) > max_log)
        return weft__invalid("the queue to rank %d has %u units: not a power of two up to %u",
                             config->peer, config->depth, 1u << max_log);
    if (config->units % page_of_units != 0 || config->entry % page_of_entry != 0 ||
        config->record % WEFT__NIC_RECORD_BYTES != 0)
        return weft__invalid(
            "the queue to rank %d has units at %llu, a record at %llu, completions "
            "at %llu: not multiples of %llu, %d, %llu",
            config->peer, (unsigned long long)config->units, (unsigned long long)config->record,
            (unsigned long long)config->entry, (unsigned long long)page_of_units,
            WEFT__NIC_RECORD_BYTES, (unsigned long long)page_of_entry);
    if (config->units + (uint64_t)config->depth * WEFT__NIC_UNIT_BYTES > config->sends->num_bytes ||
        config->record + WEFT__NIC_RECORD_BYTES > config->sends->num_bytes ||
        config->entry + WEFT__NIC_CQ_BYTES > config->completions->num_bytes)
        return weft__invalid("the queue to rank %d ends behind its memory, %llu and %llu bytes",
                             config->peer, (unsigned long long)config->sends->num_bytes,
                             (unsigned long long)config->completions->num_bytes);
    return WEFT_OK;
}

static weft_result create(struct weft__nic_qp *qp, const char *what,
                          const struct weft__devx_command *command,
                          struct weft__mlx5dv_devx_obj **object, uint32_t *number)
{
    const struct weft__nic_device *device = qp->device;
    uint8_t bytes[WEFT__DEVX_ANSWER_BYTES] = {0};
    *object = device->verbs->mlx5dv_devx_obj_create(device->context, command->bytes,
                                                    command->num_bytes, bytes, sizeof bytes);
    if (*object == NULL)
        return refuse(qp, what, errno, bytes);
    *number = weft__devx_decode_answer(bytes).number;
    return WEFT_OK;
}

static weft_result create_cq(struct weft__nic_qp *qp)
{
    const struct weft__nic_qp_config *config = &qp->config;
    const uint32_t umem = config->completions->umem->umem_id;
    const struct weft__devx_cq cq = {.entries = {umem, config->entry},
                                     .record = {umem, config->entry + WEFT__NIC_UNIT_BYTES},
                                     .log_entries = LOG_ENTRIES,
                                     .log_page = config->completions->log_page,
                                     .uar = qp->device->uar->page_id,
                                     .eqn = qp->device->eqn};
    struct weft__devx_command command;
    weft__devx_create_cq(&cq, &command);
    return create(qp, "create the completions", &command, &qp->cq, &qp->cq_number);
}

static weft_result create_qp(struct weft__nic_qp *qp)
{
    const struct weft__nic_qp_config *config = &qp->config;
    const uint32_t umem = config->sends->umem->umem_id;
    const struct weft__devx_qp pair = {.units = {umem, config->units},
                                       .record = {umem, config->record},
                                       .log_depth = log2_of(config->depth),
                                       .log_page = config->sends->log_page,
                                       .uar = qp->device->uar->page_id,
                                       .pd = qp->device->pd_number,
                                       .cq = qp->cq_number,
                                       .user_index = (uint32_t)config->peer,
                                       .timestamps = qp->device->limits.timestamps};
    struct weft__devx_command command;
    weft__devx_create_qp(&pair, &command);
    return create(qp, "create the queue pair", &command, &qp->qp, &qp->end.qp);
}

static weft_result modify(struct weft__nic_qp *qp, const char *what,
                          const struct weft__devx_command *command)
{
    uint8_t bytes[WEFT__DEVX_ANSWER_BYTES] = {0};
    const int error = qp->device->verbs->mlx5dv_devx_obj_modify(
        qp->qp, command->bytes, command->num_bytes, bytes, sizeof bytes);
    return error == 0 ? WEFT_OK : refuse(qp, what, error, bytes);
}

static weft_result make(struct weft__nic_qp *qp)
{
    struct weft__devx_command command;
    WEFT__TRY(create_cq(qp));
    WEFT__TRY(create_qp(qp));
    const struct weft__devx_path path = {.qp = qp->end.qp, .port = qp->device->port};
    weft__devx_init_qp(&path, &command);
    return modify(qp, "initialise the queue pair", &command);
}

weft_result weft__nic_qp_create(const struct weft__nic_device *device,
                                const struct weft__nic_qp_config *config, struct weft__nic_qp *qp)
{
    WEFT__TRY(check_config(device, config));
    *qp = (struct weft__nic_qp){.device = device, .config = *config, .end = device->end};
    qp->end.log_reads = smaller(qp->end.log_reads, MAX_LOG_READS);
    const weft_result result = make(qp);
    if (result != WEFT_OK)
        weft__nic_qp_destroy(qp);
    return result;
}

void weft__nic_qp_destroy(struct weft__nic_qp *qp)
{
    if (qp->qp != NULL)
        (void)qp->device->verbs->mlx5dv_devx_obj_destroy(qp->qp);
    if (qp->cq != NULL)
        (void)qp->device->verbs->mlx5dv_devx_obj_destroy(qp->cq);
    *qp = (struct weft__nic_qp){0};
}

/* ---------------------------------------------------------------- connection */

static const char *link_name(uint32_t link)
{
    return link == WEFT__IBV_ETHERNET ? "Ethernet" : "InfiniBand";
}

/* The kernel knows who the next hop is; the NIC does not ask it. */
static weft_result find_mac(const struct weft__nic_qp *qp, struct weft__devx_path *path)
{
    const struct weft__nic_device *device = qp->device;
    struct weft__ibv_ah_attr attr = {
        .is_global = 1,
        .port_num = (uint8_t)device->port,
        .grh = {.sgid_index = (uint8_t)device->gid_index, .hop_limit = UINT8_MAX}};
    struct weft__mlx5dv_ah found = {0};
    memcpy(attr.grh.dgid, path->peer.gid, sizeof attr.grh.dgid);
    struct weft__ibv_ah *ah = device->verbs->ibv_create_ah(device->pd, &attr);
    if (ah == NULL)
        return weft__system_error("%s does not find the address of rank %d", device->name,
                                  qp->config.peer);
    struct weft__mlx5dv_obj object = {.ah = {.in = ah, .out = &found}};
    const int error = device->verbs->mlx5dv_init_obj(&object, WEFT__MLX5DV_OBJ_AH);
    if (error == 0)
        memcpy(path->mac, found.av->rmac, sizeof path->mac);
    (void)device->verbs->ibv_destroy_ah(ah);
    if (error != 0)
        return weft__error(WEFT_ERROR_SYSTEM, "%s does not tell the address of rank %d: %s",
                           device->name, qp->config.peer, strerror(error));
    return WEFT_OK;
}

weft_result weft__nic_qp_connect(struct weft__nic_qp *qp, const struct weft__devx_end *peer)
{
    enum { FIRST_UDP_PORT = 0xc000, UDP_PORTS = 0x4000 };
    const struct weft__nic_device *device = qp->device;
    struct weft__devx_path path = {.qp = qp->end.qp,
                                   .port = device->port,
                                   .gid_index = device->gid_index,
                                   .udp_port = FIRST_UDP_PORT + qp->end.qp % UDP_PORTS,
                                   .mtu = smaller(qp->end.mtu, peer->mtu),
                                   .log_reads = smaller(qp->end.log_reads, peer->log_reads),
                                   .peer = *peer};
    struct weft__devx_command command;
    if (peer->link != qp->end.link)
        return weft__error(WEFT_ERROR_MISMATCH,
                           "the NIC of rank %d is on %s, %s of this rank on %s", qp->config.peer,
                           link_name(peer->link), device->name, link_name(qp->end.link));
    if (peer->link == WEFT__IBV_ETHERNET)
        WEFT__TRY(find_mac(qp, &path));
    weft__devx_ready_to_receive(&path, &command);
    WEFT__TRY(modify(qp, "connect the queue pair", &command));
    weft__devx_ready_to_send(&path, &command);
    return modify(qp, "open the sends", &command);
}

/* ---------------------------------------------------------------- use */

static struct weft__nic_unit *entry_of(const struct weft__nic_qp *qp)
{
    return (void *)(qp->config.completions->address + qp->config.entry);
}

struct weft__nic_queue weft__nic_qp_queue(const struct weft__nic_qp *qp)
{
    const struct weft__nic_qp_config *config = &qp->config;
    return (struct weft__nic_queue){.units = (void *)(config->sends->address + config->units),
                                    .record = (void *)(config->sends->address + config->record),
                                    .doorbell = qp->device->uar->reg_addr,
                                    .cqe = entry_of(qp),
                                    .qp = qp->end.qp,
                                    .depth = config->depth,
                                    .batch = config->batch};
}

static void hear(struct weft__nic_qp *qp)
{
    struct weft__nic_unit *entry = entry_of(qp);
    const struct weft__nic_tail tail = weft__nic_decode_tail(
        __atomic_load_n(&entry->words[WEFT__NIC_CQE_TAIL_WORD], __ATOMIC_ACQUIRE));
    if (tail.opcode == WEFT__NIC_CQE_INVALID || tail.opcode == WEFT__NIC_CQE_REQUEST)
        return;
    const struct weft__nic_cqe cqe = weft__nic_decode_cqe(entry);
    if (qp->has_failed &&
        (qp->failure.syndrome != WEFT__NIC_FLUSHED || cqe.syndrome == WEFT__NIC_FLUSHED))
        return;
    qp->has_failed = 1;
    qp->failed_unit = tail.counter;
    qp->failure = cqe;
}

weft_result weft__nic_qp_check(struct weft__nic_qp *qp)
{
    const struct weft__nic_cqe *cqe = &qp->failure;
    char cause[WEFT__NIC_CAUSE_BYTES];
    hear(qp);
    if (!qp->has_failed)
        return WEFT_OK;
    weft__nic_cause_text(
        &(struct weft__nic_cause){cqe->syndrome, cqe->vendor_syndrome, qp->end.qp, qp->failed_unit},
        cause);
    return weft__error(cqe->syndrome == WEFT__NIC_RETRIES ? WEFT_ERROR_RANK_FAILED
                                                          : WEFT_ERROR_SYSTEM,
                       "the NIC's queue to rank %d has failed: %s", qp->config.peer, cause);
}
