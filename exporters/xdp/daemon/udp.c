// SPDX-License-Identifier: Apache-2.0
#include "udp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "text.h"

int udp_open(const char *setting, const char *where) {
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    const char *colon = strrchr(where, ':'), *from = where;
    char host[INET6_ADDRSTRLEN] = "", *rest = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &rest, 10) : 0;
    size_t size = colon ? (size_t)(colon - where) : 0;
    int fd, bad;

    if (size > 1 && where[0] == '[' && colon[-1] == ']') {
        from++;
        size -= 2;
    }
    if (size && size < sizeof host)
        memcpy(host, from, size);
    if (!rest || *rest || !port || port > 65535 ||
        (inet_pton(AF_INET, host, &four.sin_addr) != 1 &&
         inet_pton(AF_INET6, host, &six.sin6_addr) != 1)) {
        log_message("%s = %s: expected ADDRESS:PORT", setting, where);
        return -1;
    }
    four.sin_port = six.sin6_port = htons((uint16_t)port);
    fd = socket(four.sin_addr.s_addr ? AF_INET : AF_INET6,
                SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bad = fd < 0 || (four.sin_addr.s_addr ? connect(fd, (struct sockaddr *)&four, sizeof four)
                                          : connect(fd, (struct sockaddr *)&six, sizeof six));
    if (!bad)
        return fd;
    log_message("%s = %s: %s", setting, where, strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

void udp_close(int *fd, uint8_t **message) {
    if (*fd >= 0)
        close(*fd);
    free(*message);
    *message = NULL;
    *fd = -1;
}
