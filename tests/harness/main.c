/* SPDX-License-Identifier: MIT */
/* The main of test programs that have none of their own. */
#include "harness/cmocka.h"

int main(void)
{
    return tests_run(NULL, NULL);
}
