/* A model writes its own training text: see skv/self_text.h. */
#include "skv/self_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/system.h"
#include "engine/engine.h"
#include "engine/self_begin.h"

enum {
    BEGIN_TOKENS = 32, /* of a given text, BOS included; those of a stream in a step */
    LENGTH_MIN = 16,
    SELF_VERSION = 2, /* in the hash: a change of the output must change the name */
    BEGIN_VERSION = 2 /* the same of beginnings, in the hash where there are some */
};

/* One stream: documents one after another, written token by token. */
typedef struct lane {
    skv_sequence *sequence; /* owned */
    skv_sampler *sampler;   /* owned */
    int32_t *ids;           /* [length] */
    size_t n, fed;          /* tokens written; those that the sequence has seen */
    skv_rng rng;            /* of beginnings */
} lane;

typedef struct writer {
    skv_engine *engine;
    const skv_vocab *vocab;
    const skv_self_options *o;
    int32_t bos;
    size_t unit;          /* bytes of a token in the file */
    int32_t *ids;         /* owned, [LANES * length] */
    unsigned char *bytes; /* owned, [LANES * length * unit] */
    skv_self_begin begin;
    lane lanes[SKV_SELF_LANES];
    lane *of_span[SKV_SELF_LANES];
} writer;

skv_engine_options skv_self_engine_options(const skv_self_options *o, bool swiftkv)
{
    skv_engine_options out = skv_engine_options_default();
    out.prefill = swiftkv ? SKV_PREFILL_TEACHER : SKV_PREFILL_FULL;
    out.context = o->length;
    out.kv_tokens = SKV_SELF_LANES * o->length;
    out.step_tokens = SKV_SELF_LANES * BEGIN_TOKENS;
    return out;
}

/* ---- documents ---- */

static void put(const writer *w, lane *l, int32_t id)
{
    if (l->n < w->o->length) l->ids[l->n++] = id;
}

static skv_status begin_document(const writer *w, lane *l, skv_error *err)
{
    skv_sequence_truncate(l->sequence, 0);
    l->fed = l->n;
    put(w, l, w->bos);
    int32_t *ids;
    size_t n_ids;
    SKV_TRY(skv_self_begin_draw(&w->begin, &l->rng, BEGIN_TOKENS - 1, &ids, &n_ids, err));
    /* A template may have written BOS itself. */
    for (size_t i = n_ids > 0 && ids[0] == w->bos; i < n_ids; i++) put(w, l, ids[i]);
    skv_text_free(ids);
    return SKV_OK;
}

static bool wish(void *user, skv_wishes *wishes)
{
    const writer *w = user;
    skv_pick_row *pick = &wishes->picks[wishes->n++];
    *pick = (skv_pick_row){.norm = false};
    skv_sampler_wish(w->of_span[wishes->i_span]->sampler, 0, pick);
    return true;
}

static void take_picked(void *user, const skv_wish_owner *owner, const skv_picked *picked)
{
    const writer *w = user;
    lane *l = w->of_span[owner->i_span];
    skv_sampler_drawn(l->sampler);
    put(w, l, picked->id);
}

/* Takes the token that was chosen last; a document may have ended with it. */
static skv_status follow(const writer *w, lane *l, skv_error *err)
{
    const int32_t last = l->ids[l->n - 1];
    if (last == w->bos) {
        l->n--; /* begin_document writes it */
        return begin_document(w, l, err);
    }
    return skv_engine_is_eos(w->engine, last) ? begin_document(w, l, err) : SKV_OK;
}

/* One step of all lanes that are not full; *any: there were some. */
static skv_status step(writer *w, bool *any, skv_error *err)
{
    skv_span spans[SKV_SELF_LANES];
    size_t n = 0;
    for (size_t i = 0; i < SKV_SELF_LANES; i++) {
        lane *l = &w->lanes[i];
        if (l->n == w->o->length) continue;
        const size_t n_left = l->n - l->fed;
        const bool all = n_left <= BEGIN_TOKENS;
        spans[n] = (skv_span){l->sequence, l->ids + l->fed, all ? n_left : BEGIN_TOKENS,
                              all ? SKV_WANT_LAST : SKV_WANT_NONE};
        w->of_span[n++] = l;
    }
    *any = n > 0;
    if (n == 0) return SKV_OK;
    const skv_step_sink sink = {.on_wish = wish, .on_picked = take_picked, .user = w};
    SKV_TRY(skv_engine_step(w->engine, spans, n, &sink, err));
    for (size_t i = 0; i < n; i++) {
        lane *l = w->of_span[i];
        l->fed += spans[i].n;
        if (spans[i].want == SKV_WANT_LAST) SKV_TRY(follow(w, l, err));
    }
    return SKV_OK;
}

/* ---- waves: all lanes from first to last token; the contents of one depend on its number alone
 * ---- */

static skv_status start_lane(writer *w, size_t i, uint64_t i_stream, skv_error *err)
{
    lane *l = &w->lanes[i];
    const uint64_t seed = skv_mix64(w->o->seed ^ skv_mix64(i_stream));
    skv_sampling sampling = skv_sampling_default();
    sampling.temperature = w->o->temperature;
    sampling.seed = seed;
    skv_sampler_free(l->sampler);
    l->sampler = NULL;
    SKV_TRY(skv_sampler_create_bare(&sampling, w->engine->config->vocab, &l->sampler, err));
    skv_rng_init(&l->rng, skv_mix64(seed));
    l->ids = w->ids + i * w->o->length;
    l->n = l->fed = 0;
    return begin_document(w, l, err);
}

static skv_status write_wave(writer *w, uint64_t i_wave, uint64_t n_waves, skv_error *err)
{
    const uint64_t size = (uint64_t)SKV_SELF_LANES * w->o->length;
    for (size_t i = 0; i < SKV_SELF_LANES; i++) {
        SKV_TRY(start_lane(w, i, i_wave * SKV_SELF_LANES + i, err));
    }
    for (bool any = true; any;) {
        SKV_TRY(step(w, &any, err));
        uint64_t done = i_wave * size;
        for (size_t i = 0; i < SKV_SELF_LANES; i++) done += w->lanes[i].n;
        if (w->o->on_progress) w->o->on_progress(w->o->user, done, n_waves * size);
    }
    for (size_t i = 0; i < size; i++) {
        for (size_t k = 0; k < w->unit; k++) {
            w->bytes[i * w->unit + k] = (unsigned char)((uint32_t)w->ids[i] >> (8 * k));
        }
    }
    return SKV_OK;
}

/* ---- the file ---- */

/* Appends the waves that the part at hand has not got. */
static skv_status fill_part(writer *w, FILE *part, const char *path, uint64_t n_waves,
                            skv_error *err)
{
    const size_t n_bytes = SKV_SELF_LANES * w->o->length * w->unit;
    SKV_REQUIRE(fseek(part, 0, SEEK_END) == 0, err, SKV_IO, "%s: %s", path, strerror(errno));
    const long size = ftell(part);
    uint64_t i = size > 0 ? (uint64_t)size / n_bytes : 0;
    const bool cut = size >= 0 && ftruncate(fileno(part), (off_t)(i * n_bytes)) == 0 &&
                     fseek(part, 0, SEEK_END) == 0;
    SKV_REQUIRE(cut, err, SKV_IO, "%s: %s", path, strerror(errno));
    for (; i < n_waves; i++) {
        SKV_TRY(write_wave(w, i, n_waves, err));
        const bool written = fwrite(w->bytes, 1, n_bytes, part) == n_bytes && fflush(part) == 0 &&
                             skv_file_sync(fileno(part)) == 0;
        SKV_REQUIRE(written, err, SKV_IO, "%s: %s", path, strerror(errno));
    }
    return SKV_OK;
}

static skv_status write_file(writer *w, const char *path, skv_error *err)
{
    const uint64_t wave = (uint64_t)SKV_SELF_LANES * w->o->length;
    skv_buf name;
    skv_buf_init(&name, 1 << 16);
    if (!skv_buf_printf(&name, "%s.part", path)) {
        skv_buf_release(&name);
        return skv_fail(err, SKV_MEMORY, "%s: no memory", path);
    }
    FILE *part = fopen(name.data, "ab");
    skv_status status = part ? fill_part(w, part, name.data, (w->o->tokens + wave - 1) / wave, err)
                             : skv_fail(err, SKV_IO, "%s: %s", name.data, strerror(errno));
    if (part && fclose(part) != 0 && status == SKV_OK) {
        status = skv_fail(err, SKV_IO, "%s: %s", name.data, strerror(errno));
    }
    if (status == SKV_OK && rename(name.data, path) != 0) {
        status = skv_fail(err, SKV_IO, "%s: %s", path, strerror(errno));
    }
    skv_buf_release(&name);
    return status;
}

/* The name says all that the text depends on. */
static char *path_of(const writer *w, const char *folder)
{
    const skv_self_options *o = w->o;
    uint64_t hash = 0;
    skv_buf text;
    skv_buf_init(&text, SKV_SELF_BEGIN_BYTES_MAX + (1 << 16));
    (void)skv_buf_printf(&text, "%d %s %d %llu %zu %a %llu %d ", (int)SELF_VERSION,
                         w->engine->source ? skv_source_path(w->engine->source) : "",
                         (int)w->engine->options.weights, (unsigned long long)o->tokens, o->length,
                         o->temperature, (unsigned long long)o->seed, w->bos);
    if (w->begin.lines) {
        (void)skv_buf_printf(&text, "%d %d ", (int)BEGIN_VERSION, (int)w->begin.is_json);
        (void)skv_buf_append(&text, w->begin.lines, w->begin.n_bytes);
    }
    for (size_t i = 0; i < text.size; i++) hash = skv_mix64(hash ^ (unsigned char)text.data[i]);
    skv_buf_clear(&text);
    (void)skv_buf_printf(&text, "self-%016llx.%s", (unsigned long long)hash,
                         w->unit == 2 ? "u16" : "u32");
    char *path = text.failed ? NULL : skv_path_join(folder, text.data);
    skv_buf_release(&text);
    return path;
}

/* ---- all of it ---- */

static skv_status check(const skv_engine *engine, const skv_self_options *o, skv_error *err)
{
    SKV_REQUIRE(o->tokens > 0 && o->tokens < UINT64_C(1) << 40, err, SKV_RANGE,
                "self-written text: %llu tokens", (unsigned long long)o->tokens);
    SKV_REQUIRE(o->length >= LENGTH_MIN && o->length <= engine->options.context, err, SKV_RANGE,
                "self-written text: documents of %zu tokens, expected %d to %zu", o->length,
                (int)LENGTH_MIN, engine->options.context);
    SKV_REQUIRE(engine->options.step_tokens >= SKV_SELF_LANES * BEGIN_TOKENS, err, SKV_RANGE,
                "self-written text: steps of %zu tokens, expected %d", engine->options.step_tokens,
                SKV_SELF_LANES * BEGIN_TOKENS);
    return SKV_OK;
}

static skv_status make_ready(writer *w, skv_error *err)
{
    const size_t length = w->o->length, V = w->engine->config->vocab;
    w->bos = skv_engine_bos(w->engine);
    if (w->vocab && skv_vocab_bos(w->vocab) >= 0) w->bos = skv_vocab_bos(w->vocab);
    if (w->bos < 0 && w->engine->config->n_eos > 0) w->bos = w->engine->config->eos[0];
    if (w->bos < 0 && w->vocab) w->bos = skv_vocab_eos(w->vocab);
    SKV_REQUIRE(
        w->bos >= 0 && (size_t)w->bos < V, err, SKV_UNSUPPORTED,
        "self-written text: the model names no token that begins a text, so training needs a "
        "file");
    w->unit = V <= 1 << 16 ? 2 : 4;
    w->ids = skv_alloc(SKV_SELF_LANES * length, sizeof *w->ids);
    w->bytes = skv_alloc(SKV_SELF_LANES * length, w->unit);
    SKV_REQUIRE(w->ids && w->bytes, err, SKV_MEMORY, "self-written text: no memory for %zu tokens",
                SKV_SELF_LANES * length);
    for (size_t i = 0; i < SKV_SELF_LANES; i++) {
        SKV_TRY(skv_sequence_create(w->engine, length, &w->lanes[i].sequence, err));
    }
    return skv_self_begin_open(w->o->begin, w->vocab, &w->begin, err);
}

static void release(writer *w)
{
    for (size_t i = 0; i < SKV_SELF_LANES; i++) {
        skv_sequence_free(w->lanes[i].sequence);
        skv_sampler_free(w->lanes[i].sampler);
    }
    skv_free(w->ids);
    skv_free(w->bytes);
    skv_self_begin_release(&w->begin);
}

skv_status skv_self_write(skv_engine *engine, const skv_vocab *vocab, const char *folder,
                          const skv_self_options *o, char **path, skv_error *err)
{
    writer w = {.engine = engine, .vocab = vocab, .o = o};
    *path = NULL;
    SKV_TRY(check(engine, o, err));
    skv_status status = make_ready(&w, err);
    if (status == SKV_OK) status = skv_folder_create(folder, err);
    if (status == SKV_OK) {
        *path = path_of(&w, folder);
        if (!*path) status = skv_fail(err, SKV_MEMORY, "%s: no memory", folder);
    }
    if (status == SKV_OK && !skv_file_exists(*path)) status = write_file(&w, *path, err);
    if (status != SKV_OK) {
        skv_free(*path);
        *path = NULL;
    }
    release(&w);
    return status;
}
