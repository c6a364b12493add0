/* Text on its way out: see text_out.h. */
#include "text_out.h"

#include <stdlib.h>
#include <string.h>

int cli_text_out_open(cli_text_out *out, const skv_vocab *vocab, const cli_ids *prompt,
                      const cli_texts *stops, FILE *echo)
{
    skv_error err = {0};
    *out = (cli_text_out){.echo = echo, .stops = cli_alloc(stops->n, sizeof *out->stops)};
    out->text.data = cli_alloc(1, 1);
    for (size_t i = 0; i < stops->n; i++) {
        out->stops[i] = (skv_text_piece){stops->at[i], strlen(stops->at[i])};
    }
    skv_stop_text_init(&out->stop, out->stops, stops->n);
    skv_status status = skv_text_stream_create(vocab, false, &out->stream, &err);
    for (size_t i = 0; status == SKV_OK && i < prompt->n; i++) {
        const char *ignored = NULL;
        size_t n = 0;
        status = skv_text_stream_push(out->stream, prompt->at[i], &ignored, &n, &err);
    }
    return cli_check(status, &err);
}

static void release_text(cli_text_out *out, const skv_text_piece *piece)
{
    if (out->text.n + piece->n + 1 > out->room) {
        out->room = 2 * (out->text.n + piece->n + 1);
        out->text.data = cli_grow(out->text.data, out->room, 1);
    }
    memcpy(out->text.data + out->text.n, piece->text, piece->n);
    out->text.n += piece->n;
    out->text.data[out->text.n] = 0;
    if (out->echo && piece->n > 0) {
        fwrite(piece->text, 1, piece->n, out->echo);
        fflush(out->echo);
    }
}

static int add(cli_text_out *out, const char *text, size_t n, bool last)
{
    const skv_text_piece in = {n > 0 ? text : "", n};
    skv_text_piece piece;
    if (!skv_stop_text_push(&out->stop, &in, last, &piece)) return cli_fail("out of memory");
    release_text(out, &piece);
    out->stopped = out->stop.stopped;
    return CLI_DONE;
}

int cli_text_out_push(cli_text_out *out, int32_t id)
{
    skv_error err = {0};
    const char *text = NULL;
    size_t n = 0;
    const skv_status status = skv_text_stream_push(out->stream, id, &text, &n, &err);
    return status == SKV_OK ? add(out, text, n, false) : cli_check(status, &err);
}

int cli_text_out_finish(cli_text_out *out)
{
    skv_error err = {0};
    const char *text = NULL;
    size_t n = 0;
    const skv_status status = skv_text_stream_finish(out->stream, &text, &n, &err);
    return status == SKV_OK ? add(out, text, n, true) : cli_check(status, &err);
}

void cli_text_out_close(cli_text_out *out)
{
    skv_text_stream_free(out->stream);
    skv_stop_text_release(&out->stop);
    free(out->stops);
    cli_bytes_release(&out->text);
    *out = (cli_text_out){0};
}
