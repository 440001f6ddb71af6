/* SPDX-License-Identifier: MIT */
/* Shared by the files of a group alone. */
#pragma once

#include "comm/rendezvous/gather.h"
#include "comm/rendezvous/group.h"
#include "comm/rendezvous/standing.h"

struct weft__member {
    enum weft__presence presence;
    struct weft__client *client;       /* while WEFT__PRESENT */
    struct weft__hello hello;          /* unless WEFT__ABSENT */
    uint64_t num_gathered;             /* sequence of its latest contribution */
    uint64_t num_excused;              /* of the last all-gather that it missed because it waited */
    struct weft__wait excuse;          /* that wait */
    struct weft__ending ending;        /* once WEFT__DEAD */
    struct weft__wait_list last_waits; /* once WEFT__LEFT: its answer */
    struct weft__called *called;       /* [num_called] the calls that it last told */
    int32_t num_called;
};

struct weft__group {
    struct weft__group *next;
    const struct weft__meeting *meeting;
    uint64_t key; /* of the communicator, in the meeting */
    int32_t num_ranks;
    int32_t first_rank; /* who came first: its num_ranks and num_nodes are the measure */
    int32_t num_came, num_present;
    enum { WEFT__GROUP_MEETING, WEFT__GROUP_MET, WEFT__GROUP_FAILED_TO_MEET } phase;
    int64_t deadline_ns; /* of the meeting; of a failed one: until when to tell late comers */
    struct weft__failure_notice failure;
    char refused[160]; /* who would be a member but for its secret; "": nobody */
    /* The all-gather under way. No rank can be ahead of another by more than one, since a rank
     * starts the next only when it has the result of this one, which needed everybody. */
    struct weft__gather gather;
    uint64_t num_inquired; /* sequence of the last whose missing ranks were asked */
    int32_t num_unheard;   /* of those asked */
    enum { WEFT__STANDING_OLD, WEFT__STANDING_NEW } standing; /* new: not compared yet */
    /* The group fails at this time, or once all members have told their calls, if members wait for
     * ever. 0: none do. */
    int64_t verdict_ns;
    struct weft__member members[];
};

/* A client that cannot be sent to is broken from then on. */
void weft__group_send(struct weft__client *client, enum weft__frame_type type, const void *body,
                      size_t body_bytes);
/* The same; takes over the message, which is NULL for lack of memory. */
void weft__group_send_message(struct weft__client *client, struct weft__message *message);

/* To all members that are there. */
void weft__group_broadcast(struct weft__group *group, struct weft__message *message);
/* Without memory nobody can be told anything: then the members see their connections end. */
void weft__group_disconnect_all(struct weft__group *group);

struct weft__failure_notice weft__group_failure(weft_result result, int32_t rank,
                                                const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Tells all members. */
void weft__group_fail(struct weft__group *group, const struct weft__failure_notice *notice);

/* group_meeting.c: a member of one group will not come to another one. WEFT__WIRE_GARBAGE if the
 * frame makes no sense. */
enum weft__wire_result weft__group_miss(struct weft__group **groups,
                                        const struct weft__meeting *meeting,
                                        const struct weft__frame *frame);

/* group_heartbeat.c. */
void weft__group_start_heartbeats(struct weft__group *group);
void weft__group_tick_heartbeats(struct weft__group *group, int64_t now_ns);
int64_t weft__group_heartbeat_deadline_ns(const struct weft__group *group);

/* Tells all members of a rank that has left, or is lost. */
void weft__group_tell_state(struct weft__group *group,
                            const struct weft__rank_state_notice *notice);

/* 1: the rank has not come to the meeting or, after it, to the all-gather under way. */
int weft__group_is_missing(const struct weft__group *group, int32_t rank);

/* group_questions.c: frames of a member; WEFT__WIRE_GARBAGE if they make no sense. */
enum weft__wire_result weft__group_pass_question(struct weft__group *group, int32_t asker,
                                                 const struct weft__frame *frame);
enum weft__wire_result weft__group_pass_answer(struct weft__group *group, int32_t asked,
                                               const struct weft__frame *frame);

/* If `rank` is in the all-gather of the host, it waits for the lowest rank that this lacks. */
void weft__group_add_ungathered(const struct weft__group *group, int32_t rank,
                                struct weft__wait_list *waits);

/* group_standing.c: takes the calls that a member tells; garbage as above. */
enum weft__wire_result weft__group_take_standing(struct weft__group *group, int32_t rank,
                                                 const struct weft__frame *frame);
/* Fails the group if members wait for each other in calls that do not fit. */
void weft__group_compare_standings(struct weft__group *group);
void weft__group_forget_standing(struct weft__member *member);

/* The all-gather is late: asks the missing ranks whether they wait themselves, and gives them a
 * little time to answer. 0: they have been asked. */
int weft__group_inquire(struct weft__group *group);
