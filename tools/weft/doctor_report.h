/* SPDX-License-Identifier: MIT */
/* What weft doctor prints on standard output. */
#pragma once

#include "link.h"

enum doctor_format { DOCTOR_FORMAT_TEXT, DOCTOR_FORMAT_JSON };

/* The exit status of weft doctor is that of its worst finding. */
enum doctor_severity { DOCTOR_FINE, DOCTOR_LIMITS, DOCTOR_STOPS };

struct doctor_report {
    enum doctor_format format;
    enum doctor_severity worst; /* of the findings so far */
};

/* `used` is the machine that communicators get, and `why`. All return 0, or -1 when standard output
 * cannot be written. */
int doctor_print_machine(struct doctor_report *report, const weft_machine_info *info);
int doctor_print_choice(struct doctor_report *report, const weft_machine_info *used,
                        const char *why);
int doctor_print_network(struct doctor_report *report, const weft_net_info *info);
/* Something about the system. */
struct doctor_finding {
    const char *what;
    char value[400];
    enum doctor_severity severity;
    const char *advice; /* how to mend it; NULL if it is fine */
};
int doctor_print_finding(struct doctor_report *report, const struct doctor_finding *finding);
int doctor_print_links(struct doctor_report *report, weft_machine machine, int32_t num_ranks,
                       const struct link_figures *links);
