/* SPDX-License-Identifier: MIT */
/* Packets on the sim: a program that uses them rightly is clean, bugs are found by name, and a
 * sender that dies or sleeps ends the waits of the others, who blame it. */
#include <string.h>

#include "harness/cmocka.h"
#include "packet_job.h"

enum { NUM_SEEDS = 300, NUM_SEEDS_RIGHT = 3000, NUM_LAUNCHES = 5 };

static struct weft__sim_result result; /* large */

struct variant {
    enum packet_form form;
    enum packet_streams streams;
};

static void run_schedule(const void *job, uint64_t seed, int32_t weakened_site,
                         struct weft__sim_result *of_schedule)
{
    const struct variant *variant = job;
    struct packet_job packets = {
        .form = variant->form, .num_launches = NUM_LAUNCHES, .streams = variant->streams};
    (void)weakened_site;
    packet_job_run(&packets, seed, of_schedule);
}

static void check_clean(enum packet_form form, enum packet_streams streams, uint64_t num_seeds)
{
    const struct variant variant = {form, streams};
    schedules_expect_sound(&(struct schedules){run_schedule, &variant, num_seeds});
}

/* The program of this form, in so many schedules. */
#define CLEAN(name, ...) TEST_CALL(name, check_clean(__VA_ARGS__))

CLEAN(a_right_program_is_clean, PACKETS_RIGHT, PACKETS_ONE_STREAM, NUM_SEEDS_RIGHT)
CLEAN(rows_are_reduced_in_rank_order, PACKETS_REDUCED, PACKETS_ONE_STREAM, NUM_SEEDS)
CLEAN(signals_tell_that_packets_were_taken, PACKETS_SIGNALLED, PACKETS_ONE_STREAM, NUM_SEEDS)
CLEAN(launches_are_ordered_by_the_packets_between_them, PACKETS_READ_LATER, PACKETS_ONE_STREAM,
      NUM_SEEDS)
CLEAN(launches_of_several_streams_are_ordered_too, PACKETS_READ_LATER, PACKETS_ORDERED_STREAMS,
      NUM_SEEDS)
/* What a rank has learned from packets is brought by the packets of its next launch. */
CLEAN(order_passes_on_from_launch_to_launch, PACKETS_CHAIN, PACKETS_ONE_STREAM, NUM_SEEDS)

/* What is wrong is told of in as many words, in every schedule or at least in some. */
enum frequency { IN_ALL, IN_SOME };

static void check_found(enum packet_form form, enum packet_streams streams,
                        enum frequency frequency, const char *told)
{
    const struct variant variant = {form, streams};
    const uint64_t num_found =
        schedules_count_races(&(struct schedules){run_schedule, &variant, NUM_SEEDS}, told);
    assert_true(frequency == IN_SOME ? num_found > 0 : num_found == NUM_SEEDS);
}

#define FOUND(name, ...) TEST_CALL(name##_is_found, check_found(__VA_ARGS__))

FOUND(a_slot_of_unordered_streams, PACKETS_RIGHT, PACKETS_UNORDERED_STREAMS, IN_ALL,
      "packet sent to a slot that")
FOUND(a_chain_of_unordered_streams, PACKETS_CHAIN, PACKETS_UNORDERED_STREAMS, IN_ALL,
      "the read is not ordered after the write")
FOUND(what_is_not_yet_passed_on, PACKETS_CHAIN_EARLY, PACKETS_ONE_STREAM, IN_ALL,
      "the read is not ordered after the write")
FOUND(one_buffer, PACKETS_ONE_BUFFER, PACKETS_ONE_STREAM, IN_ALL, "packet sent to a slot that")
FOUND(one_buffer_not_known_to_be_empty, PACKETS_ONE_BUFFER, PACKETS_ONE_STREAM, IN_SOME,
      "the sender did not learn that it was emptied")
FOUND(a_slot_that_stays_full, PACKETS_HALF_TAKEN, PACKETS_ONE_STREAM, IN_ALL,
      "packet sent to a slot that is full")
FOUND(a_slot_used_twice_in_a_launch, PACKETS_SENT_TWICE, PACKETS_ONE_STREAM, IN_ALL,
      "packet sent to a slot that")
FOUND(a_packet_taken_twice, PACKETS_TWO_TAKERS, PACKETS_ONE_STREAM, IN_SOME, "packet taken twice")
/* Unless all packets came before anybody looked. */
FOUND(a_slot_that_was_never_emptied, PACKETS_DIRTY, PACKETS_ONE_STREAM, IN_SOME,
      "what is taken for a packet was not sent")
FOUND(data_read_after_a_packet, PACKETS_READ_AT_ONCE, PACKETS_ONE_STREAM, IN_ALL,
      "the read is not ordered after the write")
FOUND(data_of_the_launch_before, PACKETS_READ_TOO_EARLY, PACKETS_ONE_STREAM, IN_ALL,
      "the read is not ordered after the write")
FOUND(a_slot_with_two_senders, PACKETS_ONE_ROW, PACKETS_ONE_STREAM, IN_ALL,
      "packet sent to a slot that")
FOUND(another_packet_than_the_awaited, PACKETS_ONE_ROW, PACKETS_ONE_STREAM, IN_SOME, "is awaited")
FOUND(a_packet_of_another_rank, PACKETS_OTHER_SENDER, PACKETS_ONE_STREAM, IN_ALL, "packet of rank")
FOUND(a_packet_that_nobody_takes, PACKETS_UNTAKEN, PACKETS_ONE_STREAM, IN_ALL,
      "packet that nobody took")
FOUND(a_packet_that_is_left, PACKETS_UNTAKEN_LEFT, PACKETS_ONE_STREAM, IN_ALL,
      "packet that nobody took")

static void check_fault(enum packet_form form, enum weft__sim_fault fault)
{
    struct packet_job job = {.form = form, .num_launches = NUM_LAUNCHES};
    int num_struck = 0, num_failed = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        job.sim.fault = WEFT__SIM_NO_FAULT;
        packet_job_run(&job, seed, &result);
        job.sim.fault = fault;
        job.sim.fault_rank = (int32_t)(seed % PACKET_RANKS);
        job.sim.fault_step = result.num_steps * (seed % 100) / 100;
        packet_job_run(&job, seed, &result);
        sim_expect_sound(&result, seed);
        num_struck += result.fault_struck;
        num_failed += job.sim.num_failed;
    }
    print_message("%d faults, %d launches of survivors failed\n", num_struck, num_failed);
    assert_true(num_struck > NUM_SEEDS / 2 && num_failed > NUM_SEEDS / 2);
}

TEST(who_waits_for_a_dead_sender_blames_it)
{
    check_fault(PACKETS_RIGHT, WEFT__SIM_KILL);
    check_fault(PACKETS_REDUCED, WEFT__SIM_KILL);
}

TEST(who_waits_for_a_sleeping_sender_blames_it)
{
    check_fault(PACKETS_RIGHT, WEFT__SIM_STALL);
    check_fault(PACKETS_REDUCED, WEFT__SIM_STALL);
}
