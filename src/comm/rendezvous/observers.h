/* SPDX-License-Identifier: MIT */
/*
 * Observers: who knows the secret may look into a job. An observer gets a roster of each
 * communicator at once, and the report of each rank when the rank answers; who does not answer is
 * known by that alone, so that the rendezvous keeps no time for it.
 *
 * An observer stays a stranger: no rank hears of it but by the question, it goes after the time of
 * strangers, and whatever it sends or does ends its own connection alone. Used by the rendezvous
 * thread.
 */
#pragma once

#include "comm/rendezvous/group.h"

/* Tells the observer, whose meeting and number are set, who the ranks are, and asks them. */
void weft__observer_begin(struct weft__client *observer, const struct weft__group *groups);

/* Passes a rank's report on to the observer that has asked, if it is still there.
 * WEFT__WIRE_GARBAGE if it makes no sense. */
enum weft__wire_result weft__observers_tell(struct weft__client *clients,
                                            const struct weft__client *member,
                                            const struct weft__frame *frame);
