/* SPDX-License-Identifier: MIT */
#include "net_world.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/host/error.h"

enum {
    DEADLINE_S = 60,
    SLEEP_MS = 10000, /* longer than anything takes: who sleeps so long was not woken */
    NUM_EMPTY = 20,
    SKIPPED = 77
};

static struct net_shared *shared;
static unsigned char *heaps;
static struct net_fake *fake_world;

uint64_t net_draw(uint64_t *random, uint64_t below)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below == 0 ? 0 : (*random >> 33) % below;
}

enum net_verdict net_fail(const struct net_party *party, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s, seed %llu, rank %d: ", party->world->engine,
            (unsigned long long)party->world->seed, party->rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return NET_FAILED;
}

uint64_t net_word(uint32_t number)
{
    return weft__net_place(NET_WORDS_REGION, number * sizeof(uint64_t));
}

unsigned char *net_heap(const struct net_party *party, int32_t rank)
{
    return heaps + (size_t)rank * party->world->heap_bytes;
}

/* ---------------------------------------------------------------- memory of devices */

static weft_result operate(const struct net_device *device)
{
    return device->state == NET_WORKS ? WEFT_OK
                                      : weft__error(WEFT_ERROR_SYSTEM, "the device broke");
}

static weft_result read_device(void *context, void *bytes, uint64_t offset, size_t num_bytes)
{
    struct net_device *device = context;
    device->num_reads++;
    memcpy(bytes, device->memory + offset, num_bytes);
    return operate(device);
}

static weft_result write_device(void *context, uint64_t offset, const void *bytes, size_t num_bytes)
{
    const struct net_device *device = context;
    memcpy(device->memory + offset, bytes, num_bytes);
    return operate(device);
}

static weft_result add_on_device(void *context, uint64_t offset, uint64_t add, uint64_t *before)
{
    const struct net_device *device = context;
    *before = atomic_fetch_add((_Atomic uint64_t *)(void *)(device->memory + offset), add);
    return operate(device);
}

struct memory {
    void *bytes;
    size_t num_bytes;
};

static struct memory memory_of(const struct net_party *party, uint32_t region)
{
    switch (region) {
    case 0:
        return (struct memory){party->heap, party->world->heap_bytes};
    case 1:
        return (struct memory){party->staging, party->world->staging_bytes};
    default:
        return (struct memory){party->words, sizeof(shared->words[0])};
    }
}

static int is_on_device(const struct net_party *party, uint32_t region)
{
    return (int)(party->world->on_device >> region & 1);
}

static int is_growing(const struct net_party *party, uint32_t region)
{
    return !is_on_device(party, region) && (party->world->growing >> region & 1) != 0;
}

/* Before connecting. */
static int register_devices(struct net_party *party)
{
    for (uint32_t region = 0; region < NET_NUM_REGIONS; region++) {
        const struct memory memory = memory_of(party, region);
        struct net_device *device = &party->devices[region];
        if (is_growing(party, region) &&
            weft__net_reg_growing(party->net, region, memory.bytes, memory.num_bytes,
                                  &device->num_bytes) != WEFT_OK)
            return -1;
        const struct weft__net_accessor accessor = {device, read_device, write_device,
                                                    add_on_device};
        device->memory = memory.bytes;
        atomic_store(&device->num_bytes, memory.num_bytes);
        if (is_on_device(party, region) &&
            weft__net_reg_accessed(party->net, region, &accessor, memory.num_bytes,
                                   &device->num_bytes) != WEFT_OK)
            return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- steps */

static const uint32_t all_regions = (1 << NET_NUM_REGIONS) - 1;

/* Registers some step of some region that grows; the same on all ranks. Steps differ in length, and
 * the rest of the region is in none. */
static weft_result register_step(struct net_party *party, uint32_t region, uint32_t step,
                                 uint32_t number)
{
    static const uint32_t ends[] = {0, 7, 18, 31};
    const uint64_t num_bytes = memory_of(party, region).num_bytes;
    const uint64_t begin = num_bytes * ends[step] / 32, end = num_bytes * ends[step + 1] / 32;
    WEFT__TRY(weft__net_reg_step(party->net, number, weft__net_place(region, begin), end - begin));
    weft__net_tell_region(
        party->net, number,
        &shared->cards[party->rank][number - WEFT__NET_MAX_REGIONS + NET_NUM_REGIONS]);
    return WEFT_OK;
}

static weft_result learn_step(struct net_party *party, uint32_t number)
{
    for (int32_t rank = 0; rank < party->num_ranks; rank++)
        if (rank != party->rank)
            WEFT__TRY(weft__net_learn_region(
                party->net, rank, number,
                &shared->cards[rank][number - WEFT__NET_MAX_REGIONS + NET_NUM_REGIONS]));
    return WEFT_OK;
}

enum what { REGISTER, LEARN_FIRST, LEARN_LAST };

static int do_steps(struct net_party *party, enum what what)
{
    uint32_t number = WEFT__NET_MAX_REGIONS;
    for (uint32_t region = 0; region < NET_NUM_REGIONS; region++)
        for (uint32_t step = 0; is_growing(party, region) && step < NET_NUM_STEPS; step++) {
            weft_result result = WEFT_OK;
            if (what == REGISTER)
                result = register_step(party, region, step, number);
            else if ((what == LEARN_LAST) == (step + 1 == NET_NUM_STEPS))
                result = learn_step(party, number);
            if (result != WEFT_OK)
                return -1;
            number++;
        }
    return 0;
}

/* At some time, by some ranks before others. */
static int hear_of_last_steps(struct net_party *party)
{
    if (party->knows == NET_KNOWS_ALL_STEPS || (party->world->growing & all_regions) == 0 ||
        net_draw(&party->random, 40) != 0)
        return 0;
    party->knows = NET_KNOWS_ALL_STEPS;
    return do_steps(party, LEARN_LAST);
}

/* ---------------------------------------------------------------- regions */

/* When connected. */
static int register_others(struct net_party *party)
{
    for (uint32_t region = 0; region < NET_NUM_REGIONS; region++) {
        const struct memory memory = memory_of(party, region);
        const enum weft__net_memory_kind kind = (party->world->by_writes >> region & 1) != 0
                                                    ? WEFT__NET_DEVICE_MEMORY
                                                    : WEFT__NET_HOST_MEMORY;
        if (is_on_device(party, region) || is_growing(party, region))
            continue;
        if (weft__net_reg(party->net, region, memory.bytes, memory.num_bytes, kind) != WEFT_OK)
            return -1;
        weft__net_tell_region(party->net, region, &shared->cards[party->rank][region]);
    }
    return do_steps(party, REGISTER);
}

static int learn_of_others(struct net_party *party)
{
    for (int32_t rank = 0; rank < party->num_ranks; rank++)
        for (uint32_t region = 0; region < NET_NUM_REGIONS; region++)
            if (rank != party->rank && !is_on_device(party, region) && !is_growing(party, region) &&
                weft__net_learn_region(party->net, rank, region, &shared->cards[rank][region]) !=
                    WEFT_OK)
                return -1;
    return do_steps(party, LEARN_FIRST);
}

/* ---------------------------------------------------------------- a party's life */

static int open_party(struct net_party *party, struct net_fake *fake)
{
    const struct net_world *world = party->world;
    struct weft__net_blob blob;
    const struct weft__net_config config = {.engine = world->engine,
                                            .rank = party->rank,
                                            .num_ranks = world->num_ranks,
                                            .secret = {1, 2, 3},
                                            .transports = world->transports,
                                            .timeout_ms = DEADLINE_S * 1000,
                                            .close_ms = fake != NULL ? 5 : DEADLINE_S * 1000 / 2,
                                            .max_message_bytes = world->max_message_bytes,
                                            .min_write_bytes = world->min_write_bytes,
                                            .custom = fake != NULL ? &net_fake_engine : NULL,
                                            .world = fake};
    if (weft__net_open(&config, &party->net) != WEFT_OK)
        return -1;
    if (register_devices(party) != 0 || weft__net_address(party->net, &blob) != WEFT_OK ||
        blob.num_bytes > sizeof(shared->blobs[0].bytes))
        return -1;
    memcpy(shared->blobs[party->rank].bytes, blob.bytes, blob.num_bytes);
    shared->blobs[party->rank].num_bytes = blob.num_bytes;
    return 0;
}

static int connect_party(struct net_party *party)
{
    struct weft__net_blob blobs[NET_MAX_PARTIES] = {{0}};
    for (int32_t rank = 0; rank < party->num_ranks; rank++)
        blobs[rank] =
            (struct weft__net_blob){shared->blobs[rank].bytes, shared->blobs[rank].num_bytes};
    return weft__net_connect(party->net, blobs) == WEFT_OK ? register_others(party) : -1;
}

static int make_party(struct net_party *party, const struct net_world *world, int32_t rank)
{
    *party = (struct net_party){.rank = rank,
                                .num_ranks = world->num_ranks,
                                .world = world,
                                .shared = shared,
                                .words = shared->words[rank],
                                .random = world->seed * 1000 + (uint64_t)rank};
    party->heap = net_heap(party, rank);
    party->staging = malloc(world->staging_bytes);
    return party->staging != NULL ? 0 : -1;
}

static enum net_verdict end_party(struct net_party *party)
{
    const struct net_world *world = party->world;
    enum net_verdict verdict = NET_PASSED;
    if (party->net != NULL)
        weft__net_close(party->net);
    if (world->closed != NULL && fake_world == NULL)
        verdict = world->closed(party);
    world->end(party->own);
    free(party->staging);
    return verdict;
}

/* ---------------------------------------------------------------- one thread */

static void end_life(const struct net_party *party, int signal)
{
    atomic_fetch_or(&shared->killed, UINT32_C(1) << party->rank);
    if (fake_world == NULL)
        raise(signal);
}

void net_kill_self(struct net_party *party)
{
    end_life(party, SIGKILL);
    if (fake_world != NULL)
        net_fake_kill(fake_world, party->rank);
}

void net_stop_self(struct net_party *party)
{
    for (int32_t rank = 0; fake_world != NULL && rank < party->num_ranks; rank++)
        net_fake_cut(fake_world, party->rank, rank);
    end_life(party, SIGSTOP);
}

int net_is_over(const struct net_party *party, int32_t rank)
{
    (void)party;
    return (int)(atomic_load(&shared->killed) >> rank & 1);
}

static int step_all(struct net_party *parties, const struct net_world *world, uint64_t max_steps)
{
    enum net_verdict verdicts[NET_MAX_PARTIES] = {NET_AGAIN};
    uint64_t random = world->seed;
    int num_passed = 0;
    for (uint64_t step = 0; step < max_steps && num_passed < world->num_ranks; step++) {
        int32_t rank = (int32_t)net_draw(&random, (uint64_t)world->num_ranks);
        if (net_is_over(&parties[rank], rank))
            continue;
        weft__net_progress(parties[rank].net);
        if (verdicts[rank] > NET_IDLE)
            continue;
        verdicts[rank] =
            hear_of_last_steps(&parties[rank]) == 0 ? world->step(&parties[rank]) : NET_FAILED;
        if (net_is_over(&parties[rank], rank))
            verdicts[rank] = NET_PASSED;
        if (verdicts[rank] == NET_FAILED)
            return -1;
        num_passed += verdicts[rank] == NET_PASSED;
    }
    if (num_passed < world->num_ranks)
        fprintf(stderr, "fake, seed %llu: only %d parties are done\n",
                (unsigned long long)world->seed, num_passed);
    return num_passed < world->num_ranks ? -1 : 0;
}

static int run_in_one_thread(const struct net_world *world)
{
    enum { MAX_STEPS = 20 * 1000 * 1000 };
    struct net_party parties[NET_MAX_PARTIES] = {{0}};
    const struct net_fake_options options = {
        .seed = world->seed, .max_delay = world->max_delay, .full_one_in = world->full_one_in};
    struct net_fake *fake = net_fake_create(&options);
    int failed = fake == NULL ? -1 : 0;
    fake_world = fake;
    for (int32_t rank = 0; rank < world->num_ranks && failed == 0; rank++)
        failed = make_party(&parties[rank], world, rank) || open_party(&parties[rank], fake);
    for (int32_t rank = 0; rank < world->num_ranks && failed == 0; rank++)
        failed = connect_party(&parties[rank]);
    for (int32_t rank = 0; rank < world->num_ranks && failed == 0; rank++) {
        failed = learn_of_others(&parties[rank]);
        parties[rank].own = world->begin(&parties[rank]);
    }
    if (failed != 0)
        fprintf(stderr, "fake: %s\n", weft__last_error());
    else
        failed = step_all(parties, world, MAX_STEPS);
    for (int32_t rank = 0; rank < world->num_ranks; rank++)
        if (parties[rank].world != NULL)
            end_party(&parties[rank]);
    if (fake != NULL)
        net_fake_destroy(fake);
    fake_world = NULL;
    return failed;
}

/* ---------------------------------------------------------------- processes */

static void wait_for_all(_Atomic int32_t *counter, int32_t num_ranks)
{
    atomic_fetch_add(counter, 1);
    while (atomic_load(counter) < num_ranks)
        poll(NULL, 0, 1);
}

/* As a progress thread does it, so that a wake-up that gets lost shows. */
static enum net_verdict sleep_if_idle(struct net_party *party, int *num_empty)
{
    if (weft__net_progress(party->net) > 0) {
        *num_empty = 0;
        return NET_AGAIN;
    }
    if (++*num_empty < NUM_EMPTY || weft__net_arm(party->net) == WEFT__NET_BUSY)
        return NET_AGAIN;
    struct pollfd readable = {.fd = weft__net_fd(party->net), .events = POLLIN};
    if (poll(&readable, 1, SLEEP_MS) == 0)
        return net_fail(party, "slept for %d ms, and was not woken", SLEEP_MS);
    *num_empty = 0;
    return NET_AGAIN;
}

static int num_living(const struct net_world *world)
{
    return world->num_ranks - __builtin_popcount(atomic_load(&shared->killed));
}

static enum net_verdict live(struct net_party *party)
{
    enum net_verdict verdict = NET_AGAIN;
    int num_empty = 0;
    while (verdict <= NET_IDLE) {
        verdict = hear_of_last_steps(party) == 0 ? party->world->step(party) : NET_FAILED;
        if (verdict == NET_AGAIN)
            num_empty = 0;
        if (verdict <= NET_IDLE && sleep_if_idle(party, &num_empty) == NET_FAILED)
            verdict = NET_FAILED;
    }
    if (verdict == NET_FAILED)
        atomic_fetch_add(&shared->num_failed, 1);
    atomic_fetch_add(&shared->num_passed, 1);
    /* The others may need this one's progress. */
    while (party->world->after == NET_STAY &&
           atomic_load(&shared->num_passed) < num_living(party->world) &&
           atomic_load(&shared->num_failed) == 0)
        if (weft__net_progress(party->net) == 0)
            poll(NULL, 0, 1);
    return verdict;
}

static int run_process(const struct net_world *world, int32_t rank)
{
    struct net_party party;
    alarm(DEADLINE_S);
    if (make_party(&party, world, rank) != 0 || open_party(&party, NULL) != 0) {
        net_fail(&party, "%s", weft__last_error());
        return 1;
    }
    wait_for_all(&shared->num_arrived, world->num_ranks);
    if (connect_party(&party) != 0) {
        net_fail(&party, "%s", weft__last_error());
        return 1;
    }
    wait_for_all(&shared->num_connected, world->num_ranks);
    if (learn_of_others(&party) != 0) {
        net_fail(&party, "%s", weft__last_error());
        return 1;
    }
    wait_for_all(&shared->num_registered, world->num_ranks);
    party.own = world->begin(&party);
    int failed = live(&party) == NET_FAILED;
    return end_party(&party) == NET_FAILED || failed;
}

/* 0 if it ended as it should. */
static int await_process(const struct net_world *world, int32_t rank, pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    if (status == 0 ||
        (rank == world->victim && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
        return 0;
    fprintf(stderr, "%s: rank %d ended with %s %d\n", world->engine, rank,
            WIFSIGNALED(status) ? "signal" : "status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return 1;
}

static int run_in_processes(const struct net_world *world)
{
    pid_t pids[NET_MAX_PARTIES] = {0};
    int num_failed = 0;
    fflush(NULL);
    for (int32_t rank = 0; rank < world->num_ranks; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0) {
            int failed = run_process(world, rank);
            fflush(NULL);
            _exit(failed);
        }
    }
    for (int32_t rank = 0; rank < world->num_ranks; rank++)
        if (rank != world->victim)
            num_failed += await_process(world, rank, pids[rank]);
    if (world->victim != NET_NO_VICTIM) {
        kill(pids[world->victim], SIGKILL); /* it may be stopped */
        num_failed += await_process(world, world->victim, pids[world->victim]);
    }
    return num_failed;
}

int net_world_run(const struct net_world *world)
{
    size_t heaps_bytes = (size_t)world->num_ranks * world->heap_bytes;
    const int protection = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_ANONYMOUS;
    shared = mmap(NULL, sizeof(*shared), protection, flags, -1, 0);
    heaps = mmap(NULL, heaps_bytes, protection, flags, -1, 0);
    if (shared == MAP_FAILED || heaps == MAP_FAILED)
        return -1;
    memset(heaps, NET_HEAP_FILL, heaps_bytes);
    int failed =
        strcmp(world->engine, "fake") == 0 ? run_in_one_thread(world) : run_in_processes(world);
    munmap(heaps, heaps_bytes);
    munmap(shared, sizeof(*shared));
    return failed;
}

/* In a process of its own: what an engine loads must not be there in the processes that fork. */
int net_engine_is_there(const char *engine)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char reason[WEFT__NET_REASON_BYTES];
        if (weft__net_probe(engine, reason, sizeof(reason)) == WEFT_OK)
            _exit(0);
        fprintf(stderr, "skipped: engine %s: %s\n", engine, reason);
        _exit(SKIPPED);
    }
    waitpid(pid, &status, 0);
    return status == 0;
}
