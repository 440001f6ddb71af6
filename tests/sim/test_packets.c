/* SPDX-License-Identifier: MIT */
/* Packets on the sim: a program that uses them rightly is clean, bugs are found by name, and a sender
 * that dies or sleeps ends the waits of the others, who blame it. */
#include <string.h>

#include "harness/cmocka.h"
#include "packet_job.h"

enum { NUM_SEEDS = 300, NUM_SEEDS_RIGHT = 3000, NUM_LAUNCHES = 5 };

static struct weft__sim_result result; /* large */

static void check_clean(enum packet_form form, enum packet_streams streams, uint64_t num_seeds)
{
    struct packet_job job = {.form = form, .num_launches = NUM_LAUNCHES, .streams = streams};
    for (uint64_t seed = 0; seed < num_seeds; seed++) {
        packet_job_run(&job, seed, &result);
        sim_expect_sound(&result, seed);
    }
}

/* What is wrong is told of in as many words, in every schedule or at least in some. */
enum frequency { IN_ALL, IN_SOME };

static void check_found_on(enum packet_streams streams, enum packet_form form,
                           enum frequency frequency, const char *told)
{
    struct packet_job job = {.form = form, .num_launches = NUM_LAUNCHES, .streams = streams};
    int num_found = 0;
    for (uint64_t seed = 0; seed < NUM_SEEDS; seed++) {
        packet_job_run(&job, seed, &result);
        num_found += result.num_races > 0 && strstr(result.report, told) != NULL;
    }
    print_message("found in %d of %d schedules: %s\n", num_found, NUM_SEEDS, told);
    assert_true(frequency == IN_SOME ? num_found > 0 : num_found == NUM_SEEDS);
}

static void check_found(enum packet_form form, enum frequency frequency, const char *told)
{
    check_found_on(PACKETS_ONE_STREAM, form, frequency, told);
}

TEST(a_right_program_is_clean)
{
    check_clean(PACKETS_RIGHT, PACKETS_ONE_STREAM, NUM_SEEDS_RIGHT);
}

TEST(rows_are_reduced_in_rank_order)
{
    check_clean(PACKETS_REDUCED, PACKETS_ONE_STREAM, NUM_SEEDS);
}

TEST(signals_tell_that_packets_were_taken)
{
    check_clean(PACKETS_SIGNALLED, PACKETS_ONE_STREAM, NUM_SEEDS);
}

TEST(launches_are_ordered_by_the_packets_between_them)
{
    check_clean(PACKETS_READ_LATER, PACKETS_ONE_STREAM, NUM_SEEDS);
}

TEST(launches_of_several_streams_are_ordered_too)
{
    check_clean(PACKETS_READ_LATER, PACKETS_ORDERED_STREAMS, NUM_SEEDS);
}

TEST(launches_of_unordered_streams_are_not)
{
    check_found_on(PACKETS_UNORDERED_STREAMS, PACKETS_RIGHT, IN_ALL, "packet sent to a slot that");
    check_found_on(PACKETS_UNORDERED_STREAMS, PACKETS_CHAIN, IN_ALL,
                   "the read is not ordered after the write");
}

/* What a rank has learned from packets is brought by the packets of its next launch. */
TEST(order_passes_on_from_launch_to_launch)
{
    check_clean(PACKETS_CHAIN, PACKETS_ONE_STREAM, NUM_SEEDS);
    check_found(PACKETS_CHAIN_EARLY, IN_ALL, "the read is not ordered after the write");
}

TEST(one_buffer_is_found)
{
    check_found(PACKETS_ONE_BUFFER, IN_ALL, "packet sent to a slot that");
    check_found(PACKETS_ONE_BUFFER, IN_SOME, "the sender did not learn that it was emptied");
}

TEST(a_slot_that_stays_full_is_found)
{
    check_found(PACKETS_HALF_TAKEN, IN_ALL, "packet sent to a slot that is full");
}

TEST(a_slot_used_twice_in_a_launch_is_found)
{
    check_found(PACKETS_SENT_TWICE, IN_ALL, "packet sent to a slot that");
}

TEST(a_packet_taken_twice_is_found)
{
    check_found(PACKETS_TWO_TAKERS, IN_SOME, "packet taken twice");
}

TEST(slots_that_were_never_emptied_are_found)
{
    /* Unless all packets came before anybody looked. */
    check_found(PACKETS_DIRTY, IN_SOME, "what is taken for a packet was not sent");
}

TEST(data_read_after_a_packet_is_found)
{
    check_found(PACKETS_READ_AT_ONCE, IN_ALL, "the read is not ordered after the write");
}

TEST(data_of_the_launch_before_is_found)
{
    check_found(PACKETS_READ_TOO_EARLY, IN_ALL, "the read is not ordered after the write");
}

TEST(two_senders_of_one_slot_are_found)
{
    check_found(PACKETS_ONE_ROW, IN_ALL, "packet sent to a slot that");
    check_found(PACKETS_ONE_ROW, IN_SOME, "is awaited");
}

TEST(a_packet_of_another_rank_is_found)
{
    check_found(PACKETS_OTHER_SENDER, IN_ALL, "packet of rank");
}

TEST(a_packet_that_nobody_takes_is_found)
{
    check_found(PACKETS_UNTAKEN, IN_ALL, "packet that nobody took");
    check_found(PACKETS_UNTAKEN_LEFT, IN_ALL, "packet that nobody took");
}

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
