/* SPDX-License-Identifier: MIT */
/* wait_until: waits for a word that any rank may add to, by one warp. */
#include "programs/one_sided/wait_until.h"

WP_PROGRAM(wait_until, warp, args)
{
    const struct wp_wait_site site = {WP_PHASE_WORD, WP_NO_RANK, args->at_least, args->place, 0};
    /* By each lane: pairs with the release of whoever adds. */
    return wp_wait(warp, args->word, args->at_least, &site);
}
