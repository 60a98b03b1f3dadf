/* server_realtime.h - OpenAI's realtime transcription over WebSocket: /v1/realtime. Part of
 * server. */
#ifndef SERVER_REALTIME_H
#define SERVER_REALTIME_H

#include "server_options.h"

struct mg_context;

#define REALTIME_STREAM_BYTES 2880000u /* wnpu_config.stream_bytes: 60 s of 16 bits at 24 kHz */

/* Registers the handlers. */
void realtime_register(struct mg_context *context);
/* Connections, until they have ended. While the server is closing, each ends behind
 * the turn that goes on. */
int realtime_active(void);
/* From now on, they do not wait for the end of a turn, but for its text so far. */
void realtime_hurry(void);

#endif
