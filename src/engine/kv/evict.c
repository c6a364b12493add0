/* The table of methods, choosing by any of them, and methods as text ("snapkv:1024,32,7,avg"): see
 * evict.h and skv/eviction.h. */
#include "kv/evict.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/size.h"

enum { CAPACITY_MAX = 1 << 28, ITEM_MAX = 24 };

enum { BY_KV_HEAD = 0, BY_QUERY_HEAD = SKV_EVICT_TAKES_HEADS };

/* By skv_evictor; NONE is nothing. */
static const struct {
    const char *name;
    const skv_evict_method *method;
    unsigned heads;
} evictors[SKV_EVICTOR_COUNT] = {
#define EVICTOR(id, name, rows, heads) [SKV_EVICT_##id] = {#name, &skv_evict_##name, rows},
    SKV_EVICTOR_LIST(EVICTOR)
#undef EVICTOR
};

#define LISTED(id, name, rows, heads) ", " #name
static const char names[] = SKV_EVICTOR_LIST(LISTED);
#undef LISTED

static const skv_evict_method *method_of(skv_evictor id)
{
    return (unsigned)id < SKV_EVICTOR_COUNT ? evictors[id].method : NULL;
}

/* The options that a method may have. */
static unsigned taken_by(skv_evictor id)
{
    return evictors[id].method->takes | evictors[id].heads;
}

static skv_evictor find_evictor(const char *name, size_t n)
{
    for (size_t i = SKV_EVICT_NONE + 1; i < SKV_EVICTOR_COUNT; i++) {
        const char *known = evictors[i].name;
        if (strlen(known) == n && memcmp(known, name, n) == 0) return (skv_evictor)i;
    }
    return SKV_EVICT_NONE;
}

bool skv_eviction_form(size_t i, const char **name, const char **form, const char **about)
{
    const size_t id = SKV_EVICT_NONE + 1 + i;
    if (id >= SKV_EVICTOR_COUNT) return false;
    *name = evictors[id].name;
    *form = evictors[id].method->form;
    *about = evictors[id].method->about;
    return true;
}

size_t skv_evict_most_rows(const skv_eviction *eviction, size_t n)
{
    const size_t most = evictors[eviction->method].method->most;
    return most == SKV_EVICT_ANY_ROWS ? n : skv_min_size(n, most * eviction->capacity);
}

size_t skv_eviction_voters(const skv_eviction *eviction)
{
    const skv_evict_method *method = method_of(eviction->method);
    if (!method || method->voting == SKV_VOTES_NONE) return 0;
    return method->voting == SKV_VOTES_ALL ? SIZE_MAX : eviction->window;
}

void skv_evict_choose(const skv_evict_slot *slot, uint32_t *rows, size_t rows_stride,
                      size_t *n_kept)
{
    const skv_evict_method *method = method_of(slot->how->method);
    for (size_t h = 0; h < slot->n_heads; h++) method->score(slot, h);
    method->share(slot, n_kept);
    for (size_t h = 0; h < slot->n_heads; h++) {
        uint32_t *own = rows + h * rows_stride;
        size_t n_prefix = skv_evict_prefix(slot, h);
        skv_evict_top(slot->votes + h * slot->stride, n_prefix, n_kept[h], own);
        for (size_t i = 0; i < slot->n_window; i++) {
            own[n_kept[h] + i] = (uint32_t)(n_prefix + i);
        }
        n_kept[h] += slot->n_window;
    }
}

/* ---- the numbers of a method, in their order ---- */

/* One place of the list of numbers; either field is NULL. */
typedef struct place {
    const char *name;
    size_t *whole;
    double *number;
} place;

enum { PLACES_MAX = 4 };

/* The numbers of a method; returns how many. */
static size_t places_of(skv_eviction *e, place out[PLACES_MAX])
{
    const unsigned takes = taken_by(e->method);
    size_t n = 0;
    if (takes & SKV_EVICT_TAKES_SINKS) out[n++] = (place){"SINKS", &e->sinks, NULL};
    out[n++] = (place){"C", &e->capacity, NULL};
    if (takes & SKV_EVICT_TAKES_WINDOW) out[n++] = (place){"w", &e->window, NULL};
    if (takes & SKV_EVICT_TAKES_KERNEL) out[n++] = (place){"k", &e->kernel, NULL};
    if (takes & SKV_EVICT_TAKES_BETA) out[n++] = (place){"beta", NULL, &e->beta};
    if (takes & SKV_EVICT_TAKES_FLOOR) out[n++] = (place){"floor", NULL, &e->floor};
    return n;
}

static bool read_place(const char *text, const place *p)
{
    char *end = NULL;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    if (p->number) {
        *p->number = strtod(text, &end);
        return errno == 0 && *end == 0 && isfinite(*p->number);
    }
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != 0 || value > CAPACITY_MAX) return false;
    *p->whole = (size_t)value;
    return true;
}

/* ---- the words ---- */

static const struct {
    const char *word;
    unsigned bit;
    bool value;
} words[] = {
    {"max", SKV_EVICT_TAKES_SMOOTHING, false}, {"avg", SKV_EVICT_TAKES_SMOOTHING, true},
    {"kv", SKV_EVICT_TAKES_HEADS, false},      {"query", SKV_EVICT_TAKES_HEADS, true},
    {"exact", SKV_EVICT_TAKES_DEPTH, false},   {"last", SKV_EVICT_TAKES_DEPTH, true},
};

static bool *flag_of(skv_eviction *e, unsigned bit)
{
    if (bit == SKV_EVICT_TAKES_SMOOTHING) return &e->average;
    return bit == SKV_EVICT_TAKES_HEADS ? &e->by_query_head : &e->last_only;
}

/* A word that the method takes and that was not said yet. */
static bool read_word(const char *text, skv_eviction *e, unsigned *said)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        unsigned bit = words[i].bit;
        if (strcmp(words[i].word, text) != 0) continue;
        if (!(taken_by(e->method) & bit) || (*said & bit)) return false;
        *said |= bit;
        *flag_of(e, bit) = words[i].value;
        return true;
    }
    return false;
}

/* ---- the whole ---- */

static skv_eviction defaults_of(skv_evictor id)
{
    const skv_evict_method *method = evictors[id].method;
    return (skv_eviction){.method = id,
                          .window = method->window > 0 ? method->window : SIZE_MAX,
                          .kernel = method->kernel,
                          .beta = method->takes & SKV_EVICT_TAKES_BETA ? 20 : 0,
                          .floor = method->takes & SKV_EVICT_TAKES_FLOOR ? 0.2 : 0};
}

static skv_status read_items(const char *text, skv_eviction *e, skv_error *err)
{
    const char *name = evictors[e->method].name, *form = evictors[e->method].method->form;
    place places[PLACES_MAX];
    size_t n_places = places_of(e, places), n_read = 0;
    unsigned said = 0;
    for (const char *at = text;;) {
        size_t n = strcspn(at, ",");
        char item[ITEM_MAX] = {0};
        if (n < sizeof item) memcpy(item, at, n);
        bool ok = n > 0 && n < sizeof item;
        if (ok && said == 0 && n_read < n_places && read_place(item, &places[n_read])) {
            n_read++;
        } else if (ok) {
            ok = read_word(item, e, &said);
        }
        SKV_REQUIRE(ok, err, SKV_ARGUMENT, "eviction: '%.*s' in '%s:%.60s', it is %s:%s",
                    (int)(n < ITEM_MAX ? n : ITEM_MAX), at, name, text, name, form);
        if (at[n] == 0) break;
        at += n + 1;
    }
    size_t n_needed = taken_by(e->method) & SKV_EVICT_TAKES_SINKS ? 2 : 1;
    SKV_REQUIRE(n_read >= n_needed, err, SKV_ARGUMENT, "eviction: '%s:%.60s' lacks %s, it is %s:%s",
                name, text, places[n_read].name, name, form);
    return SKV_OK;
}

skv_status skv_eviction_parse(const char *text, skv_eviction *out, skv_error *err)
{
    size_t n = strcspn(text, ":");
    const skv_evictor id = find_evictor(text, n);
    if (strcmp(text, "none") == 0) {
        *out = (skv_eviction){.method = SKV_EVICT_NONE};
        return SKV_OK;
    }
    SKV_REQUIRE(id != SKV_EVICT_NONE && text[n] == ':', err, SKV_ARGUMENT,
                "eviction: '%.60s' is none, or METHOD:C,... with METHOD one of%s", text, names + 1);
    skv_eviction e = defaults_of(id);
    SKV_TRY(read_items(text + n + 1, &e, err));
    if (e.window == SIZE_MAX) e.window = e.capacity / 2;
    SKV_TRY(skv_eviction_check(&e, err));
    *out = e;
    return SKV_OK;
}

skv_status skv_eviction_check(const skv_eviction *e, skv_error *err)
{
    const skv_evict_method *method = method_of(e->method);
    if (e->method == SKV_EVICT_NONE) return SKV_OK;
    SKV_REQUIRE(method, err, SKV_ARGUMENT, "eviction: no method %d", (int)e->method);
    SKV_REQUIRE(e->capacity >= 2 && e->capacity <= CAPACITY_MAX, err, SKV_ARGUMENT,
                "eviction: C %zu is not from 2 to %d", e->capacity, CAPACITY_MAX);
    SKV_REQUIRE(e->window >= 1 && e->window < e->capacity, err, SKV_ARGUMENT,
                "eviction: w %zu is not at least 1 and below C %zu", e->window, e->capacity);
    bool all = method->voting == SKV_VOTES_ALL;
    SKV_REQUIRE(all || e->window <= SKV_EVICT_WINDOW_MAX, err, SKV_ARGUMENT,
                "eviction: w %zu, at most %d", e->window, SKV_EVICT_WINDOW_MAX);
    SKV_REQUIRE(e->kernel >= 1 && e->kernel <= SKV_EVICT_KERNEL_MAX, err, SKV_ARGUMENT,
                "eviction: k %zu is not from 1 to %d", e->kernel, SKV_EVICT_KERNEL_MAX);
    SKV_REQUIRE(e->sinks < e->capacity, err, SKV_ARGUMENT,
                "eviction: %zu sinks, C %zu has no room for others", e->sinks, e->capacity);
    SKV_REQUIRE(!e->by_query_head || taken_by(e->method) & SKV_EVICT_TAKES_HEADS, err, SKV_ARGUMENT,
                "eviction: %s keeps rows by KV head, not by query head", evictors[e->method].name);
    bool beta = method->takes & SKV_EVICT_TAKES_BETA;
    SKV_REQUIRE(!beta || (e->beta >= 1 && e->beta <= 1e6), err, SKV_ARGUMENT,
                "eviction: beta %g is not from 1 to 1e6", e->beta);
    SKV_REQUIRE(e->floor >= 0 && e->floor <= 1, err, SKV_ARGUMENT,
                "eviction: floor %g is not from 0 to 1", e->floor);
    return SKV_OK;
}

void skv_eviction_print(const skv_eviction *eviction, char out[SKV_EVICTION_TEXT])
{
    skv_eviction e = *eviction;
    place places[PLACES_MAX];
    if (!method_of(e.method)) {
        (void)snprintf(out, SKV_EVICTION_TEXT, "none");
        return;
    }
    size_t n = (size_t)snprintf(out, SKV_EVICTION_TEXT, "%s", evictors[e.method].name);
    size_t n_places = places_of(&e, places);
    for (size_t i = 0; i < n_places; i++) {
        char *at = out + n;
        size_t room = SKV_EVICTION_TEXT - n;
        const char *mark = i == 0 ? ":" : ",";
        n += (size_t)(places[i].whole ? snprintf(at, room, "%s%zu", mark, *places[i].whole)
                                      : snprintf(at, room, "%s%.9g", mark, *places[i].number));
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (!(taken_by(e.method) & words[i].bit) || *flag_of(&e, words[i].bit) != words[i].value) {
            continue;
        }
        n += (size_t)snprintf(out + n, SKV_EVICTION_TEXT - n, ",%s", words[i].word);
    }
}
