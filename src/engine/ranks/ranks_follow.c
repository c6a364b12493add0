/* A rank that repeats the calls of rank 0: see ranks_tell.h. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "ranks/ranks_tell.h"

enum { ENGINES_MAX = 8 };

/* A sequence or an engine of rank 0's, and the one here. */
typedef struct own_sequence {
    uint64_t name;
    skv_sequence *sequence; /* owned */
} own_sequence;

typedef struct own_engine {
    uint64_t name;
    skv_engine *engine;      /* owned */
    skv_prefix_index *index; /* owned; NULL: there is none */
} own_engine;

typedef struct follower {
    const skv_team *team;
    own_engine engines[ENGINES_MAX];
    size_t n_engines;
    own_sequence *sequences; /* owned, [n_sequences] */
    size_t n_sequences, room;
    unsigned char *message; /* owned: the body of the last one */
    size_t message_room;
    skv_span *spans; /* owned */
    size_t span_room;
} follower;

/* One message. */
typedef struct order {
    skv_told head;
    const unsigned char *body; /* [head.n_bytes] */
    own_engine *engine;        /* NULL: it names none that is here */
    own_sequence *sequence;
} order;

static skv_status grow(void **array, size_t *room, size_t n, size_t size, skv_error *err)
{
    if (n <= *room) return SKV_OK;
    const size_t more = skv_max_size(n, 2 * *room);
    void *grown = skv_realloc(*array, more, size);
    SKV_REQUIRE(grown, err, SKV_MEMORY, "ranks: no memory for %zu bytes", more * size);
    *array = grown;
    *room = more;
    return SKV_OK;
}

static own_sequence *find_sequence(const follower *f, uint64_t name)
{
    for (size_t i = 0; i < f->n_sequences; i++) {
        if (f->sequences[i].name == name) return &f->sequences[i];
    }
    return NULL;
}

static skv_status take_message(follower *f, order *out, skv_error *err)
{
    unsigned char block[SKV_TOLD_BLOCK];
    void *body = f->message;
    *out = (order){.engine = NULL};
    SKV_TRY(f->team->share(f->team->ctx, block, sizeof block, err));
    memcpy(&out->head, block, sizeof out->head);
    SKV_REQUIRE(out->head.n_bytes <= SKV_TOLD_BYTES_MAX, err, SKV_FORMAT,
                "ranks: a message of %llu bytes, at most %d", (unsigned long long)out->head.n_bytes,
                (int)SKV_TOLD_BYTES_MAX);
    const size_t n = (size_t)out->head.n_bytes, room = sizeof block - sizeof out->head;
    const skv_status status = grow(&body, &f->message_room, skv_max_size(n, room), 1, err);
    f->message = body;
    SKV_TRY(status);
    memcpy(f->message, block + sizeof out->head, room);
    if (n > room) SKV_TRY(skv_team_share(f->team, f->message + room, n - room, err));
    out->body = f->message;
    for (size_t i = 0; i < f->n_engines; i++) {
        if (f->engines[i].name == out->head.engine) out->engine = &f->engines[i];
    }
    out->sequence = find_sequence(f, out->head.sequence);
    return SKV_OK;
}

/* ---- engines ---- */

/* Texts that follow each other in a message, each copied to `to` with a zero behind it. */
static const char *take_text(const unsigned char **from, uint64_t n, char **to)
{
    char *text = *to;
    memcpy(text, *from, n);
    text[n] = 0;
    *from += n;
    *to += n + 1;
    return n > 0 ? text : NULL;
}

/* One that fails here fails on all ranks, and rank 0 says why. */
static skv_status open_engine(follower *f, const order *o, skv_error *err)
{
    skv_told_open told;
    char texts[3 * SKV_TOLD_TEXT];
    SKV_REQUIRE(o->head.n_bytes >= sizeof told && f->n_engines < ENGINES_MAX, err, SKV_FORMAT,
                "ranks: a message of %zu bytes", (size_t)o->head.n_bytes);
    memcpy(&told, o->body, sizeof told);
    SKV_REQUIRE(told.version == SKV_TOLD_VERSION && told.n_path < SKV_TOLD_TEXT &&
                    told.n_level < SKV_TOLD_TEXT && told.n_device < SKV_TOLD_TEXT,
                err, SKV_UNSUPPORTED, "ranks: process 0 has another version of the program");
    SKV_REQUIRE(o->head.n_bytes - sizeof told == told.n_path + told.n_level + told.n_device, err,
                SKV_FORMAT, "ranks: a message of %zu bytes for texts of %zu, %zu and %zu",
                (size_t)o->head.n_bytes, (size_t)told.n_path, (size_t)told.n_level,
                (size_t)told.n_device);
    const unsigned char *from = o->body + sizeof told;
    char *to = texts;
    const char *path = take_text(&from, told.n_path, &to);
    told.options.cpu = take_text(&from, told.n_level, &to);
    told.options.device = take_text(&from, told.n_device, &to);
    told.options.team = f->team;
    SKV_REQUIRE(path, err, SKV_FORMAT, "ranks: a message without a path");
    skv_engine *engine = NULL;
    const skv_status status = o->head.mark
                                  ? skv_engine_open_preset(path, &told.options, &engine, err)
                                  : skv_engine_open(path, &told.options, &engine, err);
    if (status == SKV_OK) f->engines[f->n_engines++] = (own_engine){o->head.engine, engine, NULL};
    return SKV_OK;
}

static void close_engine(follower *f, own_engine *own)
{
    for (size_t i = f->n_sequences; i-- > 0;) {
        if (f->sequences[i].sequence->engine != own->engine) continue;
        skv_sequence_free(f->sequences[i].sequence);
        f->sequences[i] = f->sequences[--f->n_sequences];
    }
    skv_prefix_index_free(own->index);
    skv_engine_close(own->engine);
    *own = f->engines[--f->n_engines];
}

/* ---- sequences ---- */

static skv_status create(follower *f, const order *o, skv_error *err)
{
    void *array = f->sequences;
    const skv_status status = grow(&array, &f->room, f->n_sequences + 1, sizeof *f->sequences, err);
    f->sequences = array;
    SKV_TRY(status);
    own_sequence own = {.name = o->head.sequence};
    SKV_TRY(skv_sequence_create_as(o->engine->engine, (skv_prefill)o->head.mark, (size_t)o->head.n,
                                   &own.sequence, err));
    f->sequences[f->n_sequences++] = own;
    return SKV_OK;
}

static void drop(follower *f, own_sequence *own)
{
    skv_sequence_free(own->sequence);
    *own = f->sequences[--f->n_sequences];
}

static skv_status share(const follower *f, const order *o, skv_error *err)
{
    const own_sequence *from = find_sequence(f, o->head.other);
    SKV_REQUIRE(from, err, SKV_ARGUMENT, "ranks: a sequence that is not here");
    return skv_sequence_share(o->sequence->sequence, from->sequence, (size_t)o->head.n, err);
}

static skv_status set_eviction(const order *o, skv_error *err)
{
    skv_eviction how;
    SKV_REQUIRE(o->head.n_bytes == sizeof how, err, SKV_FORMAT, "ranks: a message of %zu bytes",
                (size_t)o->head.n_bytes);
    memcpy(&how, o->body, sizeof how);
    return skv_sequence_set_eviction(o->sequence->sequence, &how, err);
}

/* ---- steps ---- */

/* Whether a message has just so many of the two. */
static bool has_items(const order *o, uint64_t n, size_t size, uint64_t n_ids)
{
    const uint64_t n_bytes = o->head.n_bytes; /* at most SKV_TOLD_BYTES_MAX */
    return n <= n_bytes / size && n_ids <= n_bytes / sizeof(int32_t) &&
           n_bytes == n * size + n_ids * sizeof(int32_t);
}

static skv_status read_spans(follower *f, const order *o, skv_error *err)
{
    const size_t n = (size_t)o->head.n;
    size_t n_left = (size_t)o->head.m;
    SKV_REQUIRE(has_items(o, o->head.n, sizeof(skv_told_span), o->head.m), err, SKV_FORMAT,
                "ranks: a message of %zu bytes", (size_t)o->head.n_bytes);
    void *array = f->spans;
    const skv_status status = grow(&array, &f->span_room, n, sizeof *f->spans, err);
    f->spans = array;
    SKV_TRY(status);
    const int32_t *ids = (const int32_t *)(const void *)(o->body + n * sizeof(skv_told_span));
    for (size_t i = 0; i < n; i++) {
        skv_told_span told;
        memcpy(&told, o->body + i * sizeof told, sizeof told);
        const own_sequence *own = find_sequence(f, told.sequence);
        SKV_REQUIRE(own && own->sequence->n_seen == told.n_seen, err, SKV_ARGUMENT,
                    "ranks: a sequence of %zu tokens has %zu here", (size_t)told.n_seen,
                    own ? own->sequence->n_seen : 0);
        SKV_REQUIRE(told.n <= n_left && told.want <= SKV_WANT_DRAFTED, err, SKV_FORMAT,
                    "ranks: a span of %zu tokens that wants %zu, %zu are left", (size_t)told.n,
                    (size_t)told.want, n_left);
        n_left -= (size_t)told.n;
        f->spans[i] = (skv_span){own->sequence, ids, (size_t)told.n, (skv_want)told.want};
        ids += told.n;
    }
    return SKV_OK;
}

/* A failure that all ranks share left them as they were. */
static skv_status step(follower *f, const order *o, skv_error *err)
{
    const skv_ranks *ranks = o->engine->engine->ranks;
    SKV_TRY(read_spans(f, o, err));
    const skv_status status =
        skv_step(o->engine->engine, f->spans, (size_t)o->head.n, NULL, NULL, err);
    if (status == SKV_OK) {
        SKV_REQUIRE(o->head.mark, err, SKV_ARGUMENT, "ranks: process 0 has no pages for a step");
        return SKV_OK;
    }
    const bool alike = o->head.mark ? status == SKV_IO : status == SKV_FULL;
    return alike ? skv_ranks_check(ranks, err) : status;
}

/* ---- the index of known prompts ---- */

static skv_status make_index(const order *o, skv_error *err)
{
    own_engine *own = o->engine;
    const size_t n_pages = skv_kv_store_pages(own->engine->store);
    SKV_REQUIRE(o->head.n <= n_pages, err, SKV_RANGE, "ranks: an index of %llu blocks, %zu pages",
                (unsigned long long)o->head.n, n_pages);
    skv_prefix_index_free(own->index);
    own->index = NULL;
    return skv_prefix_index_create(own->engine->store, (size_t)o->head.n, o->head.m, &own->index,
                                   err);
}

static skv_status match(const order *o, skv_error *err)
{
    const size_t n = (size_t)o->head.n;
    const int32_t *ids = (const int32_t *)(const void *)o->body;
    skv_sequence *s = o->sequence->sequence;
    SKV_REQUIRE(has_items(o, 0, 1, o->head.n) && s->n_seen == 0 && n <= s->max_tokens, err,
                SKV_FORMAT, "ranks: a message of %zu bytes for %zu ids", (size_t)o->head.n_bytes,
                n);
    size_t checkpoint;
    const size_t n_found =
        skv_prefix_index_match(o->engine->index, o->head.m, ids, n, &s->cache, &checkpoint);
    SKV_REQUIRE(n_found == o->head.other, err, SKV_ARGUMENT,
                "ranks: %zu tokens of a prompt are known, %zu here", (size_t)o->head.other,
                n_found);
    skv_sequence_adopt(s, ids, n_found, checkpoint);
    return SKV_OK;
}

static skv_status remember(const order *o, skv_error *err)
{
    const skv_sequence *s = o->sequence->sequence;
    SKV_REQUIRE(o->head.n == s->n_seen, err, SKV_ARGUMENT, "ranks: %zu tokens, %zu here",
                (size_t)o->head.n, s->n_seen);
    skv_prefix_index_insert(o->engine->index, o->head.m, s->ids, s->n_seen, &s->cache);
    return SKV_OK;
}

static skv_status touch(const order *o, skv_error *err)
{
    const int32_t *ids = (const int32_t *)(const void *)o->body;
    SKV_REQUIRE(has_items(o, 0, 1, o->head.n), err, SKV_FORMAT,
                "ranks: a message of %zu bytes for %zu ids", (size_t)o->head.n_bytes,
                (size_t)o->head.n);
    skv_prefix_index_touch(o->engine->index, o->head.m, ids, (size_t)o->head.n);
    return SKV_OK;
}

/* ---- the loop ---- */

static skv_status of_index(const order *o, skv_error *err)
{
    if (o->head.what == SKV_TOLD_INDEX) return make_index(o, err);
    SKV_REQUIRE(o->engine->index, err, SKV_ARGUMENT, "ranks: an index that is not here");
    if (o->head.what == SKV_TOLD_MATCH) return match(o, err);
    if (o->head.what == SKV_TOLD_REMEMBER) return remember(o, err);
    if (o->head.what == SKV_TOLD_TOUCH) return touch(o, err);
    SKV_REQUIRE(o->head.what == SKV_TOLD_FORGET, err, SKV_FORMAT, "ranks: a message of kind %u",
                (unsigned)o->head.what);
    (void)skv_prefix_index_evict(o->engine->index, (size_t)o->head.n);
    return SKV_OK;
}

static skv_status of_sequence(follower *f, const order *o, skv_error *err)
{
    skv_sequence *s = o->sequence->sequence;
    switch (o->head.what) {
    case SKV_TOLD_FREE: drop(f, o->sequence); return SKV_OK;
    case SKV_TOLD_TRUNCATE: (void)skv_sequence_truncate(s, (size_t)o->head.n); return SKV_OK;
    case SKV_TOLD_SHARE: return share(f, o, err);
    case SKV_TOLD_EVICTION: return set_eviction(o, err);
    case SKV_TOLD_EXPECT: return skv_sequence_expect(s, (size_t)o->head.n, err);
    case SKV_TOLD_EVICT: return skv_sequence_evict(s, err);
    default: return of_index(o, err);
    }
}

static skv_status obey(follower *f, const order *o, skv_error *err)
{
    if (o->head.what == SKV_TOLD_OPEN) return open_engine(f, o, err);
    SKV_REQUIRE(o->engine, err, SKV_ARGUMENT, "ranks: an engine that is not here");
    switch (o->head.what) {
    case SKV_TOLD_CLOSE: close_engine(f, o->engine); return SKV_OK;
    case SKV_TOLD_CREATE: return create(f, o, err);
    case SKV_TOLD_STEP: return step(f, o, err);
    case SKV_TOLD_INDEX:
    case SKV_TOLD_TOUCH:
    case SKV_TOLD_FORGET: return of_index(o, err);
    default: break;
    }
    SKV_REQUIRE(o->sequence && o->sequence->sequence->engine == o->engine->engine, err,
                SKV_ARGUMENT, "ranks: a sequence that is not here");
    return of_sequence(f, o, err);
}

skv_status skv_ranks_follow(const skv_team *team, skv_error *err)
{
    SKV_REQUIRE(team && team->rank > 0, err, SKV_ARGUMENT, "ranks: process 0 follows nobody");
    follower f = {.team = team};
    order o = {.engine = NULL};
    skv_status status = take_message(&f, &o, err);
    while (status == SKV_OK && o.head.what != SKV_TOLD_END) {
        status = obey(&f, &o, err);
        if (status == SKV_OK) status = take_message(&f, &o, err);
    }
    while (f.n_engines > 0) close_engine(&f, &f.engines[0]);
    skv_free(f.sequences);
    skv_free(f.message);
    skv_free(f.spans);
    return status;
}

skv_status skv_ranks_end(const skv_team *team, skv_error *err)
{
    if (skv_team_size(team) == 1) return SKV_OK;
    unsigned char block[SKV_TOLD_BLOCK] = {0};
    const skv_told head = {.what = SKV_TOLD_END};
    memcpy(block, &head, sizeof head);
    return team->share(team->ctx, block, sizeof block, err);
}
