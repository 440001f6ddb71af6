/* SPDX-License-Identifier: MIT */
/* Tells how much the system gives a job, and what to do where that is too little. */
#pragma once

#include "doctor_report.h"

/* 0, or -1 if it cannot be written. */
int doctor_print_system(struct doctor_report *report);
