/* SPDX-License-Identifier: MIT */
#include "nic_hardware.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "harness/cmocka.h"
#include "net/nic/model_cable.h"
#include "nic_kernel.h"
#include "workload/rng.h"

static struct {
    struct nic_hardware open[WEFT__NIC_MAX_ENDS]; /* by descriptor; peers of the wire are indices */
    struct weft__nic_cable cable;
    struct rng rng;
    char complaint[256], complaint_told[256];
} world;

void nic_hardware_complain(const char *format, ...)
{
    va_list arguments;
    if (world.complaint[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(world.complaint, sizeof world.complaint, format, arguments);
    va_end(arguments);
}

const char *nic_hardware_complaint(void)
{
    memcpy(world.complaint_told, world.complaint, sizeof world.complaint);
    world.complaint[0] = '\0';
    return world.complaint_told;
}

/* ---------------------------------------------------------------- below the models */

static char *find(const struct nic_hardware *hardware, uint64_t address, uint32_t num_bytes)
{
    for (int i = 0; i < NIC_MAX_OBJECTS; i++) {
        const struct nic_object *object = &hardware->objects[i];
        if ((object->kind == NIC_MR || object->kind == NIC_UMEM) && address >= object->address &&
            address - object->address + num_bytes <= object->num_bytes)
            return object->memory + (address - object->address);
    }
    nic_hardware_complain("the NIC of device %d reaches for 0x%llx, which is not registered",
                          hardware->device, (unsigned long long)address);
    return NULL;
}

static void load(void *context, enum weft__nic_load what, void *to, uint64_t from,
                 uint32_t num_bytes)
{
    const char *memory = find(context, from, num_bytes);
    (void)what;
    memset(to, 0, num_bytes);
    if (memory != NULL)
        memcpy(to, memory, num_bytes);
}

static void store(void *context, enum weft__nic_store what, uint64_t to, const void *from,
                  uint32_t num_bytes)
{
    char *memory = find(context, to, num_bytes);
    (void)what;
    if (memory != NULL)
        memcpy(memory, from, num_bytes);
}

static uint64_t add(void *context, uint64_t address, uint64_t addend)
{
    uint64_t before, after;
    load(context, WEFT__NIC_LOAD_SOURCE, &before, address, sizeof before);
    after = before + addend;
    store(context, WEFT__NIC_STORE_TARGET, address, &after, sizeof after);
    return before;
}

static uint32_t draw(void *context, uint32_t bound)
{
    (void)context;
    return rng_below(&world.rng, bound);
}

static void tell(void *context, const struct weft__nic_finding *finding)
{
    const struct nic_hardware *hardware = context;
    char text[WEFT__NIC_FINDING_BYTES];
    weft__nic_finding_text(finding, text);
    nic_hardware_complain("device %d: %.200s", hardware->device, text);
}

/* ---------------------------------------------------------------- life */

struct nic_hardware *nic_hardware_open(int device, int fd)
{
    int slot = 0;
    while (slot < WEFT__NIC_MAX_ENDS && world.open[slot].model != NULL)
        slot++;
    assert_true(slot < WEFT__NIC_MAX_ENDS);
    struct nic_hardware *hardware = &world.open[slot];
    const struct weft__nic_model_config config = {.host = {.context = hardware,
                                                           .load = load,
                                                           .store = store,
                                                           .add = add,
                                                           .draw = draw,
                                                           .tell = tell},
                                                  .wire = weft__nic_cable_wire(&world.cable)};
    *hardware = (struct nic_hardware){.device = device, .fd = fd};
    assert_ok(weft__nic_model_create(&config, &hardware->model));
    world.cable.draw = draw;
    world.cable.ends[slot] = hardware->model;
    world.cable.is_dead[slot] = 0;
    return hardware;
}

struct nic_hardware *nic_hardware_of(int fd)
{
    for (int i = 0; i < WEFT__NIC_MAX_ENDS; i++)
        if (world.open[i].model != NULL && fd >= 0 && world.open[i].fd == fd)
            return &world.open[i];
    return NULL;
}

int nic_hardware_find_peer(int device, uint32_t qp)
{
    for (int i = 0; i < WEFT__NIC_MAX_ENDS; i++)
        if (world.open[i].model != NULL && world.open[i].device == device &&
            nic_hardware_find(&world.open[i], NIC_QP, qp) != NULL)
            return i;
    return -1;
}

int nic_hardware_num_open(void)
{
    int num_open = 0;
    for (int i = 0; i < WEFT__NIC_MAX_ENDS; i++)
        num_open += world.open[i].model != NULL;
    return num_open;
}

/* Packets to it, and from it, are lost. The kernel frees what a process has left. */
void nic_hardware_close(struct nic_hardware *hardware)
{
    const uint32_t slot = (uint32_t)(hardware - world.open);
    for (uint32_t i = 0; i < NIC_MAX_OBJECTS; i++) {
        if (hardware->objects[i].kind != NIC_NO_OBJECT && !hardware->objects[i].is_static)
            nic_hardware_complain("device %d is closed with an object of kind %d left",
                                  hardware->device, hardware->objects[i].kind);
        nic_hardware_remove(hardware, i);
    }
    while (weft__nic_cable_step(&world.cable))
        continue;
    weft__nic_model_destroy(hardware->model);
    world.cable.ends[slot] = NULL;
    world.cable.is_dead[slot] = 1;
    *hardware = (struct nic_hardware){.fd = -1};
}

/* ---------------------------------------------------------------- objects */

struct nic_object *nic_hardware_add(struct nic_hardware *hardware, enum nic_object_kind kind,
                                    uint32_t *handle)
{
    static uint32_t last_number = 0x100; /* all are different, so that none is mistaken */
    for (uint32_t i = 1; i < NIC_MAX_OBJECTS; i++) {
        if (hardware->objects[i].kind != NIC_NO_OBJECT)
            continue;
        *handle = i;
        hardware->objects[i] = (struct nic_object){.kind = kind, .number = last_number += 0x11};
        return &hardware->objects[i];
    }
    fail_msg("more than %d objects", NIC_MAX_OBJECTS);
    return NULL;
}

struct nic_object *nic_hardware_find(struct nic_hardware *hardware, enum nic_object_kind kind,
                                     uint32_t number)
{
    for (int i = 0; i < NIC_MAX_OBJECTS; i++)
        if (hardware->objects[i].kind == kind && hardware->objects[i].number == number)
            return &hardware->objects[i];
    return NULL;
}

void nic_hardware_remove(struct nic_hardware *hardware, uint64_t handle)
{
    assert_true(handle < NIC_MAX_OBJECTS);
    struct nic_object *object = &hardware->objects[handle];
    for (int i = 0; object->kind == NIC_CQ && i < NIC_MAX_OBJECTS; i++)
        if (hardware->objects[i].kind == NIC_QP && hardware->objects[i].cq_idx == object->cq_idx)
            nic_hardware_complain("a completion queue is gone before its queue pair");
    if (object->num_mapped > 0)
        assert_int_equal(munmap(object->mapping, object->num_mapped), 0);
    *object = (struct nic_object){0};
}

int nic_hardware_map(struct nic_object *object, const struct nic_memory *memory)
{
    struct stat status;
    object->address = memory->address;
    object->num_bytes = memory->num_bytes;
    object->memory = (char *)(uintptr_t)memory->address;
    if (memory->dmabuf < 0)
        return memory->num_bytes > 0 && memory->address != 0 ? 0 : EFAULT;
    if (fstat(memory->dmabuf, &status) != 0)
        return EBADF;
    if (memory->address + memory->num_bytes > (uint64_t)status.st_size)
        return EINVAL;
    object->num_mapped = (size_t)status.st_size;
    object->mapping =
        mmap(NULL, object->num_mapped, PROT_READ | PROT_WRITE, MAP_SHARED, memory->dmabuf, 0);
    assert_ptr_not_equal(object->mapping, MAP_FAILED);
    object->memory = object->mapping + memory->address;
    object->address = (uintptr_t)object->memory;
    return 0;
}

void nic_hardware_add_region(struct nic_hardware *hardware, const struct nic_object *object,
                             uint32_t rights)
{
    const struct weft__nic_region region = {.address = object->address,
                                            .num_bytes = object->num_bytes,
                                            .local_key = object->number,
                                            .remote_key = object->number,
                                            .rights = rights};
    assert_ok(weft__nic_model_add_region(hardware->model, &region));
}

/* ---------------------------------------------------------------- running it */

static void hear(struct nic_hardware *hardware, const struct nic_object *uar)
{
    uint64_t *doorbell = (uint64_t *)(void *)(uar->memory + NIC_REGISTER_OFFSET);
    const uint64_t value = *doorbell;
    uint32_t words[2];
    if (value == 0)
        return;
    *doorbell = 0;
    memcpy(words, &value, sizeof words);
    const uint32_t number = weft__nic_be32(words[1]) >> 8;
    const struct nic_object *qp = nic_hardware_find(hardware, NIC_QP, number);
    if (qp == NULL || qp->state != NIC_READY_TO_SEND)
        nic_hardware_complain("device %d: a doorbell for queue pair 0x%x, which cannot send",
                              hardware->device, number);
    else
        weft__nic_model_ring(hardware->model, value);
}

void nic_hardware_hear(void)
{
    for (int i = 0; i < WEFT__NIC_MAX_ENDS; i++)
        for (int k = 0; k < NIC_MAX_OBJECTS; k++) {
            const struct nic_object *object = &world.open[i].objects[k];
            if (object->kind == NIC_UAR && object->memory != NULL)
                hear(&world.open[i], object);
        }
}

int nic_hardware_step(void)
{
    int has_moved = 0;
    nic_hardware_hear();
    for (int i = 0; i < WEFT__NIC_MAX_ENDS; i++)
        if (world.open[i].model != NULL)
            has_moved |= weft__nic_model_step(world.open[i].model);
    return has_moved | weft__nic_cable_step(&world.cable);
}

void nic_hardware_cut(int device)
{
    for (uint32_t i = 0; i < WEFT__NIC_MAX_ENDS; i++)
        if (world.open[i].model != NULL && world.open[i].device == device)
            weft__nic_cable_cut(&world.cable, i);
}
