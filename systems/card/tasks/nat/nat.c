// SPDX-License-Identifier: Apache-2.0
/* Network address translation: the first mapping of the source, else of the destination. */
#include "card_task.h"

enum { MAPPINGS = 32, WORDS = 4 };

struct nat {
    uint32_t staged[WORDS];
    uint32_t mappings[MAPPINGS * WORDS]; /* inside and outside address, ports, whether it is one */
};

static void nat_write(void *state, uint32_t address, uint32_t word) {
    struct nat *my = state;
    card_stage(my->staged, my->mappings, MAPPINGS, WORDS, address, word);
}

static uint32_t nat_run(void *state, uint8_t *head) {
    const struct nat *my = state;
    for (uint32_t inbound = 0; inbound < 2; inbound++) {
        uint32_t at = 26 + 4 * inbound, port = 34 + 2 * inbound;
        for (const uint32_t *m = my->mappings; m < my->mappings + MAPPINGS * WORDS; m += WORDS) {
            uint32_t own = inbound ? m[2] & 0xffff : m[2] >> 16;
            if (!(m[3] & 1) || card_head_u32(head + at) != m[inbound] ||
                card_head_u16(head + port) != own)
                continue;
            card_set_address(head, at, m[1 - inbound]);
            card_head_set_u16(head + port, inbound ? m[2] >> 16 : m[2]);
            return 0;
        }
    }
    return 0;
}

extern const struct card_task_kind card_task_nat;
const struct card_task_kind card_task_nat = {sizeof(struct nat), 0, nat_write, NULL, nat_run};
