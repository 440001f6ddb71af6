/* SPDX-License-Identifier: MIT */
/* Puts to other nodes on the sim: a program that uses them rightly is clean, wrong ones are found
 * by name, each of their ordering sites is needed, and a rank that dies ends the waits of the
 * others, who blame it. */
#include <string.h>

#include "harness/cmocka.h"
#include "put_job.h"

enum {
    NUM_SEEDS = 200,
    NUM_SEEDS_RIGHT = 1000,
    NUM_SEEDS_LARGE = 2,
    NUM_LAUNCHES = 2,
    NUM_SITES = 7
};

static struct weft__sim_result result; /* large */

static struct put_job job_of(enum put_form form, uint64_t seed)
{
    static const struct {
        int32_t num_nodes, ranks_per_node;
    } shapes[] = {{2, 1}, {3, 1}, {4, 1}, {2, 2}};
    return (struct put_job){.form = form,
                            .num_launches = form == PUTS_UNAWAITED ? 1 : NUM_LAUNCHES,
                            .sim = {.num_nodes = shapes[seed % 4].num_nodes,
                                    .ranks_per_node = shapes[seed % 4].ranks_per_node,
                                    .weakened_site = WEFT__SIM_NO_SITE}};
}

static void run_schedule(const void *form, uint64_t seed, int32_t weakened_site,
                         struct weft__sim_result *of_schedule)
{
    struct put_job job = job_of(*(const enum put_form *)form, seed);
    job.sim.weakened_site = weakened_site;
    put_job_run(&job, seed, of_schedule);
}

static void check_clean(enum put_form form, uint64_t num_seeds)
{
    schedules_expect_sound(&(struct schedules){run_schedule, &form, num_seeds});
}

/* The program of this form, in so many schedules. */
#define CLEAN(name, ...) TEST_CALL(name, check_clean(__VA_ARGS__))

CLEAN(a_right_program_is_clean, PUTS_RIGHT, NUM_SEEDS_RIGHT)
CLEAN(the_number_of_all_puts_tells_of_them_all, PUTS_ALL_COUNTED, NUM_SEEDS)
CLEAN(the_last_credits_may_be_left, PUTS_CREDITS_LEFT, NUM_SEEDS)

TEST(sixteen_nodes_of_four_ranks_are_clean)
{
    for (uint64_t seed = 0; seed < NUM_SEEDS_LARGE; seed++) {
        struct put_job job = job_of(PUTS_RIGHT, seed);
        job.sim.num_nodes = PUT_MAX_NODES;
        job.sim.ranks_per_node = 4;
        put_job_run(&job, seed, &result);
        sim_expect_sound(&result, seed);
    }
}

/* What is wrong is told of in as many words, in every schedule or at least in some. */
enum frequency { IN_ALL, IN_SOME };

static void check_found(enum put_form form, enum frequency frequency, const char *told)
{
    const uint64_t num_found =
        schedules_count_races(&(struct schedules){run_schedule, &form, NUM_SEEDS}, told);
    assert_true(frequency == IN_SOME ? num_found > 0 : num_found == NUM_SEEDS);
}

#define FOUND(name, ...) TEST_CALL(name##_is_found, check_found(__VA_ARGS__))

FOUND(a_row_read_before_it_has_come, PUTS_NOT_AWAITED, IN_ALL,
      "by the network for the put at planted_puts.c")
FOUND(a_source_written_before_it_has_been_sent, PUTS_SOURCE_REUSED, IN_ALL,
      "read by the network for the put")
FOUND(a_slot_sent_to_while_it_is_read, PUTS_SLOT_REUSED, IN_SOME,
      ": write by the network for the put")
/* Puts are in no order even if the same fiber has carried both. Where the slot is read between
 * them, the read is told of. */
FOUND(a_slot_sent_to_twice, PUTS_SLOT_REUSED, IN_SOME, "the two writes are not ordered")
FOUND(the_put_of_a_slot_sent_to_twice, PUTS_SLOT_REUSED, IN_ALL, "by the network for the put")
FOUND(a_credit_given_too_early, PUTS_CREDIT_FIRST, IN_ALL, "by the network for the put")
FOUND(a_credit_given_before_the_row_has_ended, PUTS_ROW_NOT_ENDED, IN_ALL,
      "by the network for the put")
FOUND(a_count_of_puts_taken_for_an_order, PUTS_COUNTED, IN_SOME, "by the network for the put")
FOUND(a_put_to_the_own_node, PUTS_TO_OWN_NODE, IN_ALL, "put to a rank of the own node")
FOUND(a_put_to_nobody, PUTS_TO_NOBODY, IN_ALL, "put to a rank that does not exist")
FOUND(an_unaligned_word, PUTS_UNALIGNED, IN_ALL, "put whose word is not aligned to 8 bytes")
FOUND(a_put_from_outside, PUTS_FROM_OUTSIDE, IN_ALL,
      "put from memory that the network does not reach")
FOUND(a_signal_that_nobody_waits_for, PUTS_UNAWAITED, IN_SOME, "signal that no one waits for")
FOUND(a_put_that_its_target_does_not_await, PUTS_UNAWAITED, IN_SOME,
      "put that was under way when its target left")
FOUND(a_put_that_nobody_waits_for, PUTS_UNAWAITED, IN_ALL, "")

/* If its sender, too, has freed it, it may be another's by then. */
TEST(credits_that_come_to_freed_memory_are_found)
{
    int num_found = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        struct put_job job = job_of(PUTS_CREDITS_LEFT, seed);
        job.memory = PUT_MEMORY_OF_HEAP;
        job.num_launches = 1;
        put_job_run(&job, seed, &result);
        num_found += strstr(result.report, "access to memory that has been freed") != NULL;
    }
    print_message("found in %d of %d schedules\n", num_found, NUM_SEEDS);
    assert_true(num_found > 0);
}

/* Which therefore need not be awaited. */
TEST(what_the_dead_have_put_to_freed_memory_harms_nobody)
{
    int num_struck = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS_RIGHT; seed++) {
        struct put_job job = job_of(PUTS_UNAWAITED, 0); /* one survivor, who frees at once */
        job.memory = PUT_MEMORY_OF_HEAP;
        job.goes_on = 1;
        put_job_run(&job, seed, &result);
        job.sim.fault = WEFT__SIM_KILL;
        job.sim.fault_step = result.num_steps * (60 + seed % 36) / 100;
        put_job_run(&job, seed, &result);
        sim_expect_sound(&result, seed);
        num_struck += result.fault_struck;
    }
    assert_true(num_struck > NUM_SEEDS_RIGHT / 2);
}

/* Sites of other programs, and of other forms of this one, are not passed. */
static int is_of_right_puts(const struct weft__sim_site *site)
{
    const enum put_form form = PUTS_RIGHT;
    const uint64_t num_passes = site->num_passes;
    if (strstr(site->file, "planted_puts.c") == NULL)
        return 0;
    run_schedule(&form, 0, WEFT__SIM_NO_SITE, &result);
    return site->num_passes > num_passes;
}

TEST(every_ordering_site_is_needed)
{
    const enum put_form form = PUTS_RIGHT;
    const struct schedules schedules = {run_schedule, &form, NUM_SEEDS};
    run_schedule(&form, 0, WEFT__SIM_NO_SITE, &result); /* its sites are known from here on */
    assert_int_equal(schedules_expect_needed(&schedules, is_of_right_puts), NUM_SITES);
}

TEST(who_waits_for_a_dead_rank_blames_it)
{
    int num_struck = 0, num_failed = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        struct put_job job = job_of(PUTS_RIGHT, seed);
        put_job_run(&job, seed, &result);
        job.sim.fault = seed % 8 < 4 ? WEFT__SIM_KILL : WEFT__SIM_STALL;
        job.sim.fault_rank = (int32_t)(seed / 8) % sim_job_num_ranks(&job.sim);
        job.sim.fault_step = result.num_steps * (seed % 100) / 100;
        put_job_run(&job, seed, &result);
        sim_expect_sound(&result, seed);
        num_struck += result.fault_struck;
        num_failed += job.sim.num_failed;
    }
    print_message("%d faults, %d launches of survivors failed\n", num_struck, num_failed);
    assert_true(num_struck > NUM_SEEDS / 2 && num_failed > NUM_SEEDS / 2);
}
