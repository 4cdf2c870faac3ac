// SPDX-License-Identifier: Apache-2.0
/* Files of addresses and prefixes, one a line; comments begin with # or ;. */
#ifndef N3ICD_LIST_FILE_H
#define N3ICD_LIST_FILE_H

#include "kernel.h"
#include "settings.h"

/* Reads both files; 0 with a message that names the first wrong line. */
int list_files_check(const struct settings *s);

/*
 * Makes the verdicts by files those of the present files: what left them is removed, what the
 * operator set stays. 0 with a message if a file is wrong or a list has no room; that list stays.
 */
int list_files_apply(const struct settings *s, const struct kernel *k);

#endif
