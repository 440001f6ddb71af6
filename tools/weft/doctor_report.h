/* SPDX-License-Identifier: MIT */
/* What weft doctor prints on standard output. */
#pragma once

#include "link.h"

enum doctor_format { DOCTOR_FORMAT_TEXT, DOCTOR_FORMAT_JSON };

/* `used` is the machine that communicators get, and `why`. All return 0, or -1 when standard output
 * cannot be written. */
int doctor_print_machine(enum doctor_format format, const weft_machine_info *info);
int doctor_print_choice(enum doctor_format format, const weft_machine_info *used, const char *why);
int doctor_print_network(enum doctor_format format, const weft_net_info *info);
/* Something about the system. */
struct doctor_finding {
    const char *what;
    char value[400];
    const char *advice; /* what to do, if something should be done; else NULL */
};
int doctor_print_finding(enum doctor_format format, const struct doctor_finding *finding);
int doctor_print_links(enum doctor_format format, weft_machine machine, int32_t num_ranks,
                       const struct link_figures *links);
