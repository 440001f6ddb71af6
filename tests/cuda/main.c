/* SPDX-License-Identifier: MIT */
/* The main of all programs of this folder. */
#include "cuda/driver.h"
#include "harness/cmocka.h"

int main(void)
{
    driver_require();
    return tests_run(NULL, NULL);
}
