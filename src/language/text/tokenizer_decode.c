/*
 * Decoding. A token becomes bytes by the steps that work on single tokens; the bytes of all
 * tokens are one stream of UTF-8, in which a character may come in several pieces. Both ways of
 * decoding run the same stream, so that they cannot differ.
 */
#include <string.h>

#include "base/size.h"
#include "base/utf8.h"
#include "text/pretokenize.h"
#include "text/tokenizer_impl.h"

/* No token of a vocabulary is a megabyte: its decoder makes it one. */
enum { TOKEN_UNITS = 8, BYTES_A_UNIT = 16, TOKEN_BYTES_MAX = 1 << 20 };

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

void skv_stream_decoder_init(skv_stream_decoder *d, const skv_tokenizer *t, bool with_special)
{
    *d = (skv_stream_decoder){.tokenizer = t, .with_special = with_special};
}

/* Characters of the GPT-2 alphabet to bytes; false when the token has any other. */
static bool put_bytes_of_alphabet(const char *text, size_t n, skv_buf *out)
{
    size_t before = out->size;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        i += skv_utf8_decode(text + i, n - i, &code);
        int byte = skv_alphabet_byte(code);
        if (byte < 0) {
            out->size = before;
            return false;
        }
        skv_buf_byte(out, (char)byte);
    }
    return true;
}

static void put_replaced(const skv_decode_step *step, const char *text, size_t n, skv_buf *out)
{
    for (size_t i = 0; i < n;) {
        bool hit = step->n_from > 0 && n - i >= step->n_from &&
                   memcmp(text + i, step->from, step->n_from) == 0;
        if (hit)
            skv_buf_append(out, step->to, step->n_to);
        else
            skv_buf_byte(out, text[i]);
        i += hit ? step->n_from : 1;
    }
}

static void put_stripped(const skv_decode_step *step, const char *text, size_t n, skv_buf *out)
{
    for (size_t k = 0; k < step->n && n >= step->n_from; k++) {
        if (memcmp(text, step->from, step->n_from) != 0) break;
        text += step->n_from;
        n -= step->n_from;
    }
    skv_buf_append(out, text, n);
}

/* One step on one token. A byte token is final: no later step may look inside. */
static void apply(const skv_decode_step *step, const char *text, size_t n, bool first, bool *final,
                  skv_buf *out)
{
    int byte;
    switch (step->kind) {
    case SKV_DECODE_REPLACE: put_replaced(step, text, n, out); return;
    case SKV_DECODE_STRIP: put_stripped(step, text, n, out); return;
    case SKV_DECODE_BYTE_LEVEL:
        *final = put_bytes_of_alphabet(text, n, out);
        if (!*final) skv_buf_append(out, text, n);
        return;
    case SKV_DECODE_METASPACE: {
        skv_decode_step replace = *step;
        if (first && !step->keep_first) replace.n_to = 0;
        put_replaced(&replace, text, n, out);
        return;
    }
    case SKV_DECODE_BYTES:
        byte = skv_byte_token_value(text, n);
        *final = byte >= 0;
        if (byte >= 0)
            skv_buf_byte(out, (char)byte);
        else
            skv_buf_append(out, text, n);
        return;
    }
}

/* Appends the bytes of one token to `out`. */
static void put_token(const skv_tokenizer *t, uint32_t id, bool first, skv_buf *out)
{
    const skv_decoder *decoder = &t->decoder;
    size_t n;
    const char *text = skv_vocab_spelling(&t->vocab, id, &n);
    bool literal = (t->vocab.flags[id] & SKV_TOKEN_LITERAL) != 0, final = false;
    if (decoder->join_by_space && !first) skv_buf_byte(out, ' ');
    if (literal || decoder->n_steps == 0) {
        skv_buf_append(out, text, n);
        return;
    }
    skv_buf buffers[2];
    skv_buf_init(&buffers[0], out->max);
    skv_buf_init(&buffers[1], out->max);
    for (size_t i = 0; i < decoder->n_steps && !final; i++) {
        bool last = i + 1 == decoder->n_steps;
        skv_buf *to = last ? out : &buffers[i & 1];
        skv_buf_clear(&buffers[i & 1]);
        apply(&decoder->steps[i], text, n, first, &final, to);
        out->failed = out->failed || to->failed;
        text = to->size > 0 ? to->data : "";
        n = to->size;
        if (final && !last) skv_buf_append(out, text, n);
    }
    skv_buf_release(&buffers[0]);
    skv_buf_release(&buffers[1]);
}

bool skv_tokenizer_piece(const skv_tokenizer *t, int32_t id, skv_buf *out)
{
    const unsigned no_text = SKV_TOKEN_SPECIAL | SKV_TOKEN_UNKNOWN | SKV_TOKEN_UNUSED;
    if (id < 0 || !skv_vocab_has(&t->vocab, (uint32_t)id)) return false;
    if ((t->vocab.flags[id] & no_text) != 0) return false;
    put_token(t, (uint32_t)id, false, out);
    return !out->failed;
}

bool skv_tokenizer_bytes(const skv_tokenizer *t, int32_t id, skv_buf *out)
{
    if (id < 0 || !skv_vocab_has(&t->vocab, (uint32_t)id)) return false;
    put_token(t, (uint32_t)id, false, out);
    return !out->failed;
}

/*
 * Writes the whole characters of held + bytes[0..n) and holds the rest. Bad bytes become U+FFFD,
 * one for each byte or one for each run that could have begun a character.
 */
static void put_stream(skv_stream_decoder *d, const char *bytes, size_t n, bool end, skv_buf *out)
{
    size_t at = 0;
    while (d->n_held + (n - at) > 0) {
        char piece[8];
        size_t n_piece = d->n_held, taken = 0;
        memcpy(piece, d->held, d->n_held);
        while (n_piece < 4 && at + taken < n) piece[n_piece++] = bytes[at + taken++];
        uint32_t code;
        size_t length = skv_utf8_decode(piece, n_piece, &code);
        bool more = !end && at + taken == n && n_piece < 4;
        if (code == SKV_UTF8_BAD && more && skv_utf8_complete(piece, n_piece) == 0) {
            memcpy(d->held, piece, n_piece);
            d->n_held = n_piece;
            return;
        }
        if (code == SKV_UTF8_BAD) {
            if (d->tokenizer->decoder.lossy_bytes) length = 1;
            skv_buf_text(out, REPLACEMENT);
        } else {
            skv_buf_append(out, piece, length);
        }
        /* Lookahead beyond this character is read again. */
        if (length >= d->n_held) {
            at += length - d->n_held;
            d->n_held = 0;
        } else {
            d->n_held -= length;
            memmove(d->held, d->held + length, d->n_held);
        }
    }
}

/* Removes the characters that the decoder strips from the start of the whole text. */
static void strip_start(skv_stream_decoder *d, const char **bytes, size_t *n)
{
    const skv_decoder *decoder = &d->tokenizer->decoder;
    while (d->n_stripped<decoder->n_strip && * n> 0) {
        bool hit = *n >= decoder->n_strip_char &&
                   memcmp(*bytes, decoder->strip_char, decoder->n_strip_char) == 0;
        if (!hit) {
            d->n_stripped = decoder->n_strip;
            return;
        }
        d->n_stripped++;
        *bytes += decoder->n_strip_char;
        *n -= decoder->n_strip_char;
    }
}

static bool push(skv_stream_decoder *d, int32_t id, skv_buf *scratch, skv_buf *out)
{
    const skv_tokenizer *t = d->tokenizer;
    if (id < 0 || !skv_vocab_has(&t->vocab, (uint32_t)id)) return true;
    if (!d->with_special && (t->vocab.flags[id] & SKV_TOKEN_SPECIAL) != 0) return true;
    skv_buf_clear(scratch);
    put_token(t, (uint32_t)id, !d->started, scratch);
    d->started = true;
    const char *bytes = scratch->size > 0 ? scratch->data : "";
    size_t n = scratch->size;
    bool literal = (t->vocab.flags[id] & SKV_TOKEN_LITERAL) != 0;
    if (literal && n > 0) d->n_stripped = t->decoder.n_strip;
    strip_start(d, &bytes, &n);
    if (d->raw) skv_buf_append(d->raw, bytes, n);
    put_stream(d, bytes, n, false, out);
    return !scratch->failed && !out->failed && !(d->raw && d->raw->failed);
}

skv_status skv_stream_decoder_push(skv_stream_decoder *d, int32_t id, skv_buf *out, skv_error *err)
{
    skv_buf scratch;
    skv_buf_init(&scratch, skv_min_size(out->max, TOKEN_BYTES_MAX));
    bool fits = push(d, id, &scratch, out);
    skv_buf_release(&scratch);
    SKV_REQUIRE(fits, err, SKV_FULL, "decoded text exceeds %zu bytes, or a token %d", out->max,
                TOKEN_BYTES_MAX);
    return SKV_OK;
}

skv_status skv_stream_decoder_finish(skv_stream_decoder *d, skv_buf *out, skv_error *err)
{
    put_stream(d, "", 0, true, out);
    SKV_REQUIRE(!out->failed, err, SKV_FULL, "decoded text exceeds %zu bytes", out->max);
    return SKV_OK;
}

skv_status skv_tokenizer_decode(const skv_tokenizer *t, const int32_t *ids, size_t n,
                                skv_decode_options options, skv_buf *out, skv_error *err)
{
    skv_stream_decoder d;
    skv_buf scratch;
    skv_budget *budget = options.budget;
    bool fits = true;
    skv_stream_decoder_init(&d, t, options.with_special);
    skv_buf_init_within(&scratch, skv_min_size(out->max, TOKEN_BYTES_MAX), budget);
    for (size_t i = 0; i < n && fits; i++) {
        fits = push(&d, ids[i], &scratch, out);
        if (budget)
            fits = fits && skv_budget_work(budget, TOKEN_UNITS + scratch.size / BYTES_A_UNIT);
    }
    skv_buf_release(&scratch);
    if (!fits && budget) SKV_TRY(skv_budget_check(budget, "text", err));
    SKV_REQUIRE(fits, err, SKV_FULL, "decoded text exceeds %zu bytes, or a token %d", out->max,
                TOKEN_BYTES_MAX);
    return skv_stream_decoder_finish(&d, out, err);
}
