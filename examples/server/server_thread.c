/* server_thread.c - see server_thread.h */
#define _XOPEN_SOURCE 700

#include "server_thread.h"

#include <stddef.h>

#define STACK_SIZE ((size_t)1 << 20)

int thread_start(pthread_t *thread, void *(*run)(void *user), void *user)
{
    pthread_attr_t attributes;
    pthread_t detached;
    int failed = pthread_attr_init(&attributes);
    if (failed == 0) {
        (void)pthread_attr_setstacksize(&attributes, STACK_SIZE);
        if (thread == NULL) {
            (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        }
        failed = pthread_create(thread != NULL ? thread : &detached, &attributes, run, user);
        (void)pthread_attr_destroy(&attributes);
    }
    return failed == 0 ? 0 : -1;
}
