/* SPDX-License-Identifier: MIT */
#define WEFT_TESTS_SIM_PROGRESS_OS_HERE
#include "progress_job.h"

#include <errno.h>
#include <string.h>

#include "machine/sim/world.h"
#include "net/progress_internal.h"
#include "progress_os.h"

enum {
    MAX_CLIENTS = 3,
    NUM_TASKS = 4, /* of each */
    NUM_SLOTS = 16,
    MAX_POLLS = 6,
    WORK_STEPS = 200,
    NAP_MS = 1000000 /* longer than a run: ends when nobody else can go on */
};

/* A thread of the rank. */
struct client {
    int has_driven;      /* and has not handed the net back */
    int is_active;       /* posts or drives just now */
    uint64_t num_needed; /* posts that others must have taken, since it sleeps */
    int needs_nic;       /* to hear its doorbell */
    int is_done;
};

static struct {
    struct weft__progress *progress;
    struct weft__work_queue *queue;
    struct sim_fiber *thread;
    struct client clients[MAX_CLIENTS];
    int32_t num_clients;
    int num_wakes;
} job;

struct progress_counts progress_counts;

/* ---------------------------------------------------------------- what progress.c asks of the
 * system */

struct thread {
    void *(*run)(void *argument);
    void *argument;
};

static void run_thread(struct sim_fiber *fiber)
{
    const struct thread *thread = fiber->argument;
    fiber->is_host = 1;
    thread->run(thread->argument);
}

weft_result progress_os_start(void *(*run)(void *argument), void *argument)
{
    struct thread *thread = sim_run_alloc(sizeof *thread);
    *thread = (struct thread){run, argument};
    job.thread = sim_fiber_start(0, SIM_HOST_STACK, run_thread, thread);
    return job.thread != NULL ? WEFT_OK : WEFT_ERROR_OUT_OF_MEMORY;
}

static int has_ended(struct sim_fiber *fiber)
{
    (void)fiber;
    return job.thread->state == SIM_DONE;
}

int progress_os_join(void)
{
    sim_wait_until(has_ended, NULL, INT64_MAX);
    return 0;
}

static int *flag_of(pthread_mutex_t *mutex)
{
    return (int *)(void *)mutex;
}

static int is_unlocked(struct sim_fiber *fiber)
{
    return !*flag_of(fiber->wait_argument);
}

static void take_lock(pthread_mutex_t *mutex)
{
    *flag_of(mutex) = 1;
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
}

int progress_os_lock(pthread_mutex_t *mutex)
{
    sim_wait_until(is_unlocked, mutex, INT64_MAX);
    take_lock(mutex);
    return 0;
}

int progress_os_try_lock(pthread_mutex_t *mutex)
{
    sim_yield();
    if (*flag_of(mutex)) {
        progress_counts.num_refused_locks++;
        return EBUSY;
    }
    take_lock(mutex);
    return 0;
}

int progress_os_unlock(pthread_mutex_t *mutex)
{
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    *flag_of(mutex) = 0;
    sim_yield();
    return 0;
}

int progress_os_yield(void)
{
    sim_yield();
    return 0;
}

ssize_t progress_os_wake(void)
{
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    job.num_wakes++;
    sim_yield();
    return sizeof(uint64_t);
}

ssize_t progress_os_take_wakes(void)
{
    job.num_wakes = 0;
    return sizeof(uint64_t);
}

/* The thread may nap while others drive, and as long after as it takes it to notice that they do
 * not any more. But it must have been woken when somebody has posted who waits, or when all have
 * handed the net back: also where others happen to make up for it later. */
enum sleep { FOR_CALLS, FOR_THE_NET };

static int is_lost(enum sleep what)
{
    int does_anybody_drive = 0, is_anything_needed = 0;
    /* Who has set the thread awake is about to wake it. */
    if (job.num_wakes > 0 || atomic_load(&job.progress->thread_state) == WEFT__THREAD_AWAKE)
        return 0;
    for (int32_t i = 0; i < job.num_clients; i++) {
        if (job.clients[i].is_active)
            return 0;
        does_anybody_drive |= job.clients[i].has_driven;
        is_anything_needed |= job.clients[i].num_needed > progress_net_num_posted();
        is_anything_needed |=
            job.clients[i].needs_nic && weft__nic_adapter_is_rung(job.progress->options.nic);
    }
    return is_anything_needed || (what == FOR_CALLS && !does_anybody_drive);
}

static int is_woken(struct sim_fiber *fiber)
{
    const enum sleep what = *(const enum sleep *)fiber->wait_argument;
    return job.num_wakes > 0 || is_lost(what) ||
           (what == FOR_THE_NET && progress_net_is_readable());
}

static int has_wakes(struct sim_fiber *fiber)
{
    (void)fiber;
    return job.num_wakes > 0;
}

/* The net's descriptor is the second, if it is there. */
int progress_os_sleep(struct pollfd *set, unsigned num_descriptors)
{
    enum sleep what = num_descriptors == 2 ? FOR_THE_NET : FOR_CALLS;
    sim_stores_commit(sim_current(), SIM_PLAIN_STORE);
    progress_counts.num_naps += what == FOR_CALLS;
    progress_counts.num_sleeps += what == FOR_THE_NET;
    const int was_woken = sim_wait_until(is_woken, &what, what == FOR_CALLS ? NAP_MS : INT64_MAX);
    progress_counts.num_woken += (uint64_t)was_woken;
    progress_counts.num_ended_by_time += (uint64_t)!was_woken;
    if (is_lost(what)) {
        sim_report("a wake-up is lost: the thread %s\n", what == FOR_CALLS ? "naps" : "sleeps");
        sim_world->result->num_wrong++;
        sim_wait_until(has_wakes, NULL, INT64_MAX); /* a hang, perhaps: the run is over */
    }
    set[0].revents = job.num_wakes > 0 ? POLLIN : 0;
    return was_woken;
}

/* ---------------------------------------------------------------- what the rank's threads do */

static void hand_back(struct client *client)
{
    if (client->has_driven)
        weft__progress_hand_back(job.progress);
    client->has_driven = 0;
}

static uint64_t post(struct client *client, enum weft__work_poster poster)
{
    const struct wp_access put = {.operation = WP_ACCESS_PUT, .loss = WP_ACCESS_MUST_NOT_BE_LOST};
    uint64_t number = 0;
    if (weft__progress_post(job.progress, &put, poster, &number) != WEFT_OK)
        sim_world->result->num_wrong++;
    if (poster == WEFT__POSTER_WAITS)
        client->num_needed = number + 1;
    return number;
}

static int is_completed(struct sim_fiber *fiber)
{
    const uint64_t *number = fiber->wait_argument;
    return atomic_load(&job.queue->num_completed) > *number;
}

static int has_come(struct sim_fiber *fiber)
{
    const int *flag = fiber->wait_argument;
    return *flag;
}

/* When it returns, others have what is left to do. */
enum drive { POLL, POST_AND_POLL };
static uint64_t drive(struct client *client, enum drive what)
{
    uint64_t number = 0;
    client->has_driven = client->is_active = 1;
    if (what == POST_AND_POLL) {
        number = post(client, WEFT__POSTER_DRIVES);
        weft__progress_drive_posted(job.progress);
    }
    for (uint64_t num_polls = sim_random(MAX_POLLS); num_polls > 0; num_polls--)
        weft__progress_drive(job.progress);
    client->is_active = 0;
    return number;
}

static void post_and_sleep(struct client *client)
{
    hand_back(client);
    client->is_active = 1;
    uint64_t number = post(client, WEFT__POSTER_WAITS);
    client->is_active = 0;
    sim_wait_until(is_completed, &number, INT64_MAX);
    client->num_needed = 0;
}

static int is_heard(struct sim_fiber *fiber)
{
    (void)fiber;
    return !weft__nic_adapter_is_rung(job.progress->options.nic);
}

static void ring_nic_and_sleep(struct client *client)
{
    hand_back(client);
    client->is_active = client->needs_nic = 1;
    progress_net_ring_nic();
    weft__progress_ring(job.progress, WEFT__POSTER_WAITS);
    client->is_active = 0;
    sim_wait_until(is_heard, NULL, INT64_MAX);
    client->needs_nic = 0;
}

static void post_and_drive(struct client *client)
{
    uint64_t number = drive(client, POST_AND_POLL);
    hand_back(client);
    sim_wait_until(is_completed, &number, INT64_MAX);
}

static void drive_and_work(struct client *client)
{
    (void)drive(client, sim_random(2) == 0 ? POST_AND_POLL : POLL);
    sim_sleep(sim_random(WORK_STEPS));
}

static void await_a_message(struct client *client)
{
    int *flag = sim_run_alloc(sizeof *flag);
    progress_net_expect(flag);
    if (sim_random(2) == 0)
        (void)drive(client, POLL);
    hand_back(client);
    sim_wait_until(has_come, flag, INT64_MAX);
}

static void run_client(struct sim_fiber *fiber)
{
    static void (*const tasks[])(struct client *) = {
        post_and_sleep, ring_nic_and_sleep, post_and_drive, drive_and_work, await_a_message};
    struct client *client = fiber->argument;
    fiber->is_host = 1;
    for (int i = 0; i < NUM_TASKS; i++)
        tasks[sim_random(sizeof tasks / sizeof tasks[0])](client);
    client->is_done = 1;
}

static void run_wire(struct sim_fiber *fiber)
{
    fiber->is_host = 1;
    progress_net_carry();
}

/* ---------------------------------------------------------------- the job */

static int is_all_done(struct sim_fiber *fiber)
{
    (void)fiber;
    for (int32_t i = 0; i < job.num_clients; i++)
        if (!job.clients[i].is_done)
            return 0;
    return atomic_load(&job.queue->num_completed) == atomic_load(&job.queue->num_reserved);
}

static int run_rank(int32_t rank, void *argument)
{
    const struct weft__progress_options options = {
        .net = progress_net_open(),
        .nic = progress_net_nic(),
        .num_ranks = 1,
        .num_slots = NUM_SLOTS,
        .cores = sim_random(2) == 0 ? WEFT__CORE_FOR_EACH_RANK : WEFT__TWO_CORES_FOR_EACH_RANK};
    (void)rank;
    (void)argument;
    memset(&job, 0, sizeof job);
    job.num_clients = 1 + (int32_t)sim_random(MAX_CLIENTS);
    if (weft__progress_start(&options, &job.progress) != WEFT_OK)
        return 1;
    job.queue = weft__progress_queue(job.progress);
    if (sim_fiber_start(0, SIM_HOST_STACK, run_wire, NULL) == NULL)
        return 1;
    for (int32_t i = 0; i < job.num_clients; i++)
        if (sim_fiber_start(0, SIM_HOST_STACK, run_client, &job.clients[i]) == NULL)
            return 1;
    sim_wait_until(is_all_done, NULL, INT64_MAX);
    weft__progress_stop(job.progress);
    progress_net_end();
    return 0;
}

void progress_job_run(uint64_t seed, int32_t weakened_site, struct weft__sim_result *result)
{
    const struct weft__sim_config config = {.seed = seed,
                                            .policy = WEFT__SIM_MIXED,
                                            .num_ranks = 1,
                                            .rank_main = run_rank,
                                            .weakened_site = weakened_site};
    if (weft__sim_run(&config, result) != 0)
        result->num_wrong++;
}
