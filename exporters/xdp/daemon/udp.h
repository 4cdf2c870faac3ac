// SPDX-License-Identifier: Apache-2.0
/* Sockets to collectors. */
#ifndef N3ICD_UDP_H
#define N3ICD_UDP_H

#include <stdint.h>

/*
 * Opens a socket to ADDRESS:PORT ([ADDRESS]:PORT for IPv6); -1 on failure, with a message that
 * begins with the setting.
 */
int udp_open(const char *setting, const char *where);
/* Closes a socket, and frees the message that is built for it. */
void udp_close(int *fd, uint8_t **message);

#endif
