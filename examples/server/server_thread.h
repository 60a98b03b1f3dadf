/* server_thread.h - threads of the server */
#ifndef SERVER_THREAD_H
#define SERVER_THREAD_H

#include <pthread.h>

/* Starts run(user) with a stack of 1 MiB; those of an HTTP library and a libc may be small.
 * *thread is to be joined; with NULL the thread is detached. Returns 0, or -1. */
int thread_start(pthread_t *thread, void *(*run)(void *user), void *user);

#endif
