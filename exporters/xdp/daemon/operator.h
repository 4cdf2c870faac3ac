// SPDX-License-Identifier: Apache-2.0
/* What an operator types: n3icd block, allow, unblock, list, status, update, unload. */
#ifndef N3ICD_OPERATOR_H
#define N3ICD_OPERATOR_H

#define OPERATOR_USAGE                                                                             \
    "or:    n3icd COMMAND [-c CONFIGURATION] [-i INTERFACE] ...\n"                                 \
    "  block WHAT [--for SECONDS] [--action drop|rate-limit:N|mark:N]\n"                           \
    "  allow WHAT [--for SECONDS] [--shared] [--remove]\n"                                         \
    "  unblock WHAT\n"                                                                             \
    "  list, status\n"                                                                             \
    "  update PACK  loads another pack, which holds over restarts\n"                               \
    "  unload       detaches the program, and ends its n3icd\n"                                    \
    "WHAT: an address (192.0.2.1), a prefix (192.0.2.0/24), or a flow\n"                           \
    "(192.0.2.1:1234-198.51.100.2:80/tcp, addresses of IPv6 in brackets)\n"

/* Whether a word is a command. */
int operator_has(const char *word);

/* Runs a command with its words; the status to end with. */
int operator_run(int words, char **word);

#endif
