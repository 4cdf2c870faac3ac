// SPDX-License-Identifier: Apache-2.0
/* The card's part of a go-back-N transport: numbers packets, and asks for lost ones. */
#include "card_task.h"

enum { CONNECTIONS = 256, HEADERS = 44 };
enum kind { SEND, DATA, NACK, OPEN };

struct transport {
    uint32_t next[CONNECTIONS], expected[CONNECTIONS];
    uint8_t asked[CONNECTIONS];
};

static uint32_t transport_run(void *state, uint8_t *head) {
    struct transport *my = state;
    uint8_t *kind = head + HEADERS, *number = kind + 4, at = kind[3];
    uint32_t sequence = card_head_u32(number);
    switch (*kind) {
    case OPEN:
        my->next[at] = my->expected[at] = 0;
        my->asked[at] = 0;
        return 0;
    case SEND:
        *kind = DATA;
        card_head_set_u32(number, my->next[at]++);
        return 0;
    case NACK:
        my->next[at] = sequence;
        return 2;
    case DATA:
        if (sequence == my->expected[at]) {
            my->expected[at]++;
            my->asked[at] = 0;
            return 0;
        }
        if (sequence - my->expected[at] < 1u << 31) {
            if (my->asked[at])
                return CARD_DENIED;
            my->asked[at] = 1;
        }
        *kind = NACK;
        card_head_set_u32(number, my->expected[at]);
        card_reply(head);
        return 1;
    default:
        return 0;
    }
}

extern const struct card_task_kind card_task_transport;
const struct card_task_kind card_task_transport = {sizeof(struct transport), 1, NULL, NULL,
                                                   transport_run};
