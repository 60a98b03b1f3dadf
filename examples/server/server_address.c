/* server_address.c - see server_address.h */
#define _XOPEN_SOURCE 700

#include "server_address.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 16

/* Finds address and port of "host:port", "[host]:port" or "port". Returns 0 or a code of
 * getaddrinfo(). */
static int find(const char *text, struct addrinfo **found)
{
    char host[128];
    const char *colon = strrchr(text, ':'), *port = colon != NULL ? colon + 1 : text;
    size_t n = colon != NULL ? (size_t)(colon - text) : 0, digits = strspn(port, "0123456789");
    struct addrinfo hints;
    if (digits == 0 || digits > 5 || port[digits] != '\0' || strtol(port, NULL, 10) > 65535 ||
        (colon != NULL && n == 0) || n >= sizeof host) {
        return EAI_NONAME;
    }
    (void)snprintf(host, sizeof host, "%.*s", (int)n, text);
    if (n > 1 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = '\0';
        memmove(host, host + 1, n - 1);
    }
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    return getaddrinfo(colon != NULL ? host : "127.0.0.1", port, &hints, found);
}

int address_resolve(const char *given, char text[ADDRESS_SIZE], char why[256])
{
    struct addrinfo *found = NULL;
    char host[48] = "", port[8] = "";
    int wrong = find(given, &found);
    if (wrong == 0) {
        wrong = getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, port, sizeof port,
                            NI_NUMERICHOST | NI_NUMERICSERV);
        (void)snprintf(text, ADDRESS_SIZE, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host,
                       port);
        freeaddrinfo(found);
    }
    if (wrong != 0) {
        (void)snprintf(why, 256, "%s; an address and a port, such as 127.0.0.1:9004, are needed",
                       gai_strerror(wrong));
    }
    return wrong != 0 ? -1 : 0;
}

int address_is_ipv6(const char *text)
{
    return text[0] == '[';
}

void address_of_client(int fd, char text[ADDRESS_SIZE])
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &size) != 0 ||
        getnameinfo((struct sockaddr *)&peer, size, text, ADDRESS_SIZE, NULL, 0,
                    NI_NUMERICHOST) != 0) {
        (void)snprintf(text, ADDRESS_SIZE, "?");
    }
}

/* What to do about an error of bind(). */
static const char *advice(int error)
{
    switch (error) {
    case EADDRINUSE: return "; another program listens there: end it, or choose another port";
    case EADDRNOTAVAIL: return "; no network interface of this machine has this address: 0.0.0.0 "
                               "stands for all that it has";
    case EACCES: return "; a port from 1024 on needs no privilege";
    case EAFNOSUPPORT: return "; this machine does not have the protocol of this address";
    default: return "";
    }
}

int address_listen(const char *text, char why[256])
{
    struct addrinfo *found = NULL;
    int fd = -1, one = 1, error = 0, wrong = find(text, &found);
    if (wrong != 0) {
        (void)snprintf(why, 256, "%s", gai_strerror(wrong));
        return -1;
    }
    fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0 ||
        listen(fd, BACKLOG) != 0) {
        error = errno;
        (void)snprintf(why, 256, "%s (errno %d)%s", strerror(error), error, advice(error));
        if (fd >= 0) {
            close(fd);
        }
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}
