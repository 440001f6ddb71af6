/* SPDX-License-Identifier: MIT */
#include "net/nic/model_cable.h"

static void send_packet(void *context, struct weft__nic_model *from, uint32_t peer,
                        const struct weft__nic_packet *packet)
{
    struct weft__nic_cable *cable = context;
    if (cable->num_answers == WEFT__NIC_MAX_ANSWERS)
        (void)weft__nic_cable_step(cable);
    const uint32_t at = cable->num_answers++;
    struct weft__nic_answer *answer = &cable->answers[at].answer;
    cable->answers[at].initiator = from;
    cable->answers[at].peer = peer;
    if (cable->is_dead[peer])
        *answer =
            (struct weft__nic_answer){.ticket = packet->ticket, .syndrome = WEFT__NIC_RETRIES};
    else
        weft__nic_model_respond(cable->ends[peer], packet, answer);
}

struct weft__nic_wire weft__nic_cable_wire(struct weft__nic_cable *cable)
{
    return (struct weft__nic_wire){.context = cable, .send = send_packet};
}

int weft__nic_cable_step(struct weft__nic_cable *cable)
{
    if (cable->num_answers == 0)
        return 0;
    const uint32_t at = cable->draw(cable->context, cable->num_answers);
    struct weft__nic_model *initiator = cable->answers[at].initiator;
    const struct weft__nic_answer answer = cable->answers[at].answer;
    cable->answers[at] = cable->answers[--cable->num_answers];
    weft__nic_model_answer(initiator, &answer);
    return 1;
}

void weft__nic_cable_cut(struct weft__nic_cable *cable, uint32_t peer)
{
    cable->is_dead[peer] = 1;
    for (uint32_t i = 0; i < cable->num_answers; i++)
        if (cable->answers[i].peer == peer)
            cable->answers[i].answer = (struct weft__nic_answer){
                .ticket = cable->answers[i].answer.ticket, .syndrome = WEFT__NIC_RETRIES};
}
