// SPDX-License-Identifier: Apache-2.0
/*
 * The configuration: lines of `key = value`; n3icd.conf explains each key. Lines below [NAME] hold
 * for the interface of that name alone.
 */
#ifndef N3ICD_SETTINGS_H
#define N3ICD_SETTINGS_H

#include <net/if.h>
#include <stdint.h>

#define SETTING 256

struct settings {
    char interface[IF_NAMESIZE];
    char object[SETTING], idle[SETTING], pack[SETTING], pins[SETTING], mode[SETTING];
    char on_exit[SETTING], socket[SETTING], json[SETTING], syslog[SETTING], prometheus[SETTING];
    char ipfix[SETTING], sflow[SETTING], control[SETTING], updates[SETTING], records[SETTING];
    char allow_file[SETTING], block_file[SETTING]; /* empty: none */
    uint32_t queue, domain, enterprise, templates_s, json_mib, json_old, sflow_rate;
    uint32_t priority; /* in libxdp's dispatcher; or NO_PRIORITY */
};

/* Reads a file; 0 with a message if it is not one. `interface` may be NULL. */
int settings_read(struct settings *s, const char *path, const char *interface);

#endif
