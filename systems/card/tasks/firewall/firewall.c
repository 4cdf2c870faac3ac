// SPDX-License-Identifier: Apache-2.0
/* A firewall by 5-tuple: the first rule that matches allows or denies a packet. */
#include "card_task.h"

enum { ENTRIES = 32, KEY = 4, WORDS = 2 * KEY + 1, RULE = 1, DENY = 2 };

struct firewall {
    uint32_t staged[WORDS];
    uint32_t rules[ENTRIES * WORDS]; /* source, destination, ports, protocol; masks; flags */
};

static void firewall_write(void *state, uint32_t address, uint32_t word) {
    struct firewall *my = state;
    card_stage(my->staged, my->rules, ENTRIES, WORDS, address, word);
}

static uint32_t firewall_run(void *state, uint8_t *head) {
    const struct firewall *my = state;
    const uint32_t key[KEY] = {card_head_u32(head + 26), card_head_u32(head + 30),
                               card_head_u32(head + 34), head[23]};
    for (const uint32_t *rule = my->rules; rule < my->rules + ENTRIES * WORDS; rule += WORDS) {
        uint32_t differs = 0;
        for (int i = 0; i < KEY; i++)
            differs |= (key[i] ^ rule[i]) & rule[KEY + i];
        if ((rule[WORDS - 1] & RULE) && differs == 0)
            return rule[WORDS - 1] & DENY ? CARD_DENIED : 0;
    }
    return 0;
}

extern const struct card_task_kind card_task_firewall;
const struct card_task_kind card_task_firewall = {sizeof(struct firewall), 0, firewall_write, NULL,
                                                  firewall_run};
