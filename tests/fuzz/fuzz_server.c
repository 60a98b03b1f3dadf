/* fuzz_server.c - what clients send to build/server: forms, fields, queries and realtime events. The
 * first byte selects what the rest is. */
#define _XOPEN_SOURCE 700
#include "../../examples/kit/json.c"
#undef _XOPEN_SOURCE
#include "../../examples/kit/list.c"
#undef _XOPEN_SOURCE
#include "../../examples/server/server_event.c"
#include "../../examples/server/server_form.c"
#undef _XOPEN_SOURCE
#define decode request_decode
#include "../../examples/server/server_request.c"
#undef decode

typedef struct state {
    request request;
    char name[FORM_NAME_MOST + 1];
    size_t data;
} state;

static int on_part(void *user, const char *name)
{
    state *s = user;
    if (strlen(name) > FORM_NAME_MOST) {
        abort();
    }
    strcpy(s->name, name);
    return 0;
}

static int on_data(void *user, const char *bytes, size_t n)
{
    state *s = user;
    s->data += n;
    return request_field(&s->request, s->name, bytes, n);
}

/* The form in pieces of a size: data never exceeds what was sent. */
static void push_form(state *s, const uint8_t *data, size_t size, size_t piece)
{
    form f;
    size_t at;
    if (form_init(&f, "multipart/form-data; boundary=\"b\"", on_part, on_data, s) != 0) {
        abort();
    }
    for (at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (form_push(&f, (const char *)data + at, n) != 0) {
            break;
        }
    }
    if (s->data > size) {
        abort();
    }
}

static void read_event(const uint8_t *data, size_t size)
{
    event_settings settings;
    event_info info;
    unsigned char *audio = malloc(size + 1);
    size_t i, used = 0;
    event_defaults(&settings);
    if (audio != NULL) {
        (void)event_read((const char *)data, size, &settings, audio, &info);
        if (info.audio_size > size || settings.rate < 8000 || settings.rate > 48000 ||
            memchr(settings.prompt, '\0', sizeof settings.prompt) == NULL) {
            abort();
        }
        for (i = 0; i < settings.n_keywords; i++) {
            const char *at = settings.keywords + used;
            const char *end = memchr(at, '\0', sizeof settings.keywords - used);
            if (end == NULL || end == at) {
                abort();
            }
            used += (size_t)(end - at) + 1;
        }
    }
    free(audio);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static state s;
    wnpu_params params;
    char *text;
    if (size == 0) {
        return 0;
    }
    memset(&s, 0, sizeof s);
    wnpu_params_init(&params, sizeof params);
    if (request_init(&s.request, (request_api)(1 << data[0] / 4 % 3), &params, 5) != 0) {
        return 0;
    }
    text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 4) {
    case 0: push_form(&s, data + 1, size - 1, 4096); break;
    case 1: push_form(&s, data + 1, size - 1, 1 + data[0] / 16); break;
    case 2: (void)request_query(&s.request, text); break;
    default: read_event(data + 1, size - 1); break;
    }
    {
        form f;
        (void)form_init(&f, text, on_part, on_data, &s);
    }
    (void)request_finish(&s.request, NULL);
    request_free(&s.request);
    free(text);
    return 0;
}
