/* Text is held back as long as it may turn out to begin a stop string. */
#include "text_out.h"

#include <string.h>

int cli_text_out_open(cli_text_out *out, const skv_vocab *vocab, const cli_ids *prompt,
                      const cli_texts *stops, FILE *echo)
{
    skv_error err = {0};
    *out = (cli_text_out){.echo = echo, .stops = stops};
    out->text.data = cli_alloc(1, 1);
    skv_status status = skv_text_stream_create(vocab, false, &out->stream, &err);
    for (size_t i = 0; status == SKV_OK && i < prompt->n; i++) {
        const char *ignored = NULL;
        size_t n = 0;
        status = skv_text_stream_push(out->stream, prompt->at[i], &ignored, &n, &err);
    }
    return cli_check(status, &err);
}

/* Where the first stop string in text[from..n) begins; n: there is none. */
static size_t find_stop(const cli_text_out *out, size_t from)
{
    for (size_t at = from; at < out->text.n; at++) {
        for (size_t i = 0; i < out->stops->n; i++) {
            const size_t n = strlen(out->stops->at[i]);
            if (n <= out->text.n - at && memcmp(out->text.data + at, out->stops->at[i], n) == 0) {
                return at;
            }
        }
    }
    return out->text.n;
}

/* Bytes at the end of the text that may be the beginning of a stop string. */
static size_t held_back(const cli_text_out *out)
{
    for (size_t at = out->n_released; at < out->text.n; at++) {
        const size_t n = out->text.n - at;
        for (size_t i = 0; i < out->stops->n; i++) {
            if (strncmp(out->text.data + at, out->stops->at[i], n) == 0) return n;
        }
    }
    return 0;
}

static void release_until(cli_text_out *out, size_t end)
{
    if (out->echo != NULL && end > out->n_released) {
        fwrite(out->text.data + out->n_released, 1, end - out->n_released, out->echo);
        fflush(out->echo);
    }
    out->n_released = end;
}

static void add(cli_text_out *out, const char *text, size_t n, bool last)
{
    if (out->stopped) return;
    if (out->text.n + n + 1 > out->room) {
        out->room = 2 * (out->text.n + n + 1);
        out->text.data = cli_grow(out->text.data, out->room, 1);
    }
    if (n > 0) memcpy(out->text.data + out->text.n, text, n);
    out->text.n += n;
    out->text.data[out->text.n] = 0;
    const size_t stop = find_stop(out, out->n_released);
    if (stop < out->text.n) {
        out->stopped = true;
        out->text.n = stop;
        out->text.data[stop] = 0;
    }
    release_until(out, out->text.n - (last || out->stopped ? 0 : held_back(out)));
}

int cli_text_out_push(cli_text_out *out, int32_t id)
{
    skv_error err = {0};
    const char *text = NULL;
    size_t n = 0;
    const skv_status status = skv_text_stream_push(out->stream, id, &text, &n, &err);
    if (status == SKV_OK) add(out, text, n, false);
    return cli_check(status, &err);
}

int cli_text_out_finish(cli_text_out *out)
{
    skv_error err = {0};
    const char *text = NULL;
    size_t n = 0;
    const skv_status status = skv_text_stream_finish(out->stream, &text, &n, &err);
    if (status == SKV_OK) add(out, text, n, true);
    return cli_check(status, &err);
}

void cli_text_out_close(cli_text_out *out)
{
    skv_text_stream_free(out->stream);
    cli_bytes_release(&out->text);
    *out = (cli_text_out){0};
}
