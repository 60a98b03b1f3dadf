/* server_models.h - the models of a server: opened when a request names one, and closed when none
 * has for a time. Part of server. All functions may be called in any thread. */
#ifndef SERVER_MODELS_H
#define SERVER_MODELS_H

#include "server_reply.h"
#include "whisper_npu.h"

#include <stddef.h>
#include <stdint.h>

#define MODELS_MOST 32

/* One model. name and path do not change; model, config and info are valid while it is held. */
typedef struct served {
    char *name;               /* for clients */
    const char *path;
    wnpu_model *model;
    wnpu_config config;       /* of its sessions */
    wnpu_model_info info;     /* of the last time that it was open */
    enum { MODEL_CLOSED, MODEL_CHANGING, MODEL_OPEN } state;
    int holders;
    int64_t free_ms;          /* since when nobody has it, by platform_now_ms() */
    uint64_t loads, failures;
} served;

typedef struct models_options {
    wnpu_config config;       /* of all sessions */
    wnpu_log_fn log;
    void *log_user;
    const char *npu;          /* for npu_open(), or NULL */
    int64_t idle_ms;          /* after which a model is closed that nobody has; 0: never */
} models_options;

/* Adds a model: "FILE", or "NAME=FILE". Returns 0, or -1 with the reason in why. */
int models_add(const char *text, char why[256]);
/* Gives the first model another name. */
int models_rename_first(const char *name, char why[256]);
/* Opens the first model, which *first receives and the caller holds, and checks that the files of
 * the others are there. Returns WNPU_OK or an error with the reason in why. */
int models_start(const models_options *options, served **first, char why[512]);
/* Whether a model is open, or the first one's file is there to be opened. */
int models_can_serve(void);
/* Closes all; nobody may hold one. */
void models_stop(void);

/* The model of this name; the first one for NULL and names that there are not, of which clients
 * send many. */
served *models_find(const char *name);
/* The model of this index, or NULL. */
served *models_at(size_t index);
/* What is known of a model since it was opened for the first time. Returns 0, or -1 before that. */
int models_info(served *m, wnpu_model_info *info);
/* Holds a model, which is opened if it is not. Returns 0, or -1 with the reason in why. */
int models_hold(served *m, char why[512]);
void models_release(served *m);

/* A model of this name, or the first one, as an object of JSON. */
void models_describe(buffer *b, served *m, const char *name);
/* Metrics of all models in the text format of Prometheus. */
void models_metrics(buffer *b);

#endif
