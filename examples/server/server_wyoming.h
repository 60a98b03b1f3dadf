/* server_wyoming.h - the Wyoming protocol over TCP, which Home Assistant speaks: a line of JSON for
 * each event, with data and audio behind it. Part of server. POSIX. */
#ifndef SERVER_WYOMING_H
#define SERVER_WYOMING_H

#include "server_http.h"

/* Serves address:port with the model, limits and parameters of the options. Returns the port, or -1
 * with the reason in why. */
int wyoming_start(const http_options *options, const char *address, char why[256]);
void wyoming_stop(void);
/* Requests whose audio is complete and that are not answered yet. */
int wyoming_active(void);

#endif
