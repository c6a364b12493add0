/*
 * Runs grammars for the oracles in Python: one command a line, one line of answer each.
 *
 *     vocab PATH            the tokens of a model; without it, single bytes and some pairs
 *     grammar KIND HEX      KIND: object, schema, regex, gbnf, choice, parts   ok | error TEXT
 *     match HEX             the bytes from the start             complete | alive | no
 *     walk SEED TOKENS      random tokens that the masks allow   complete HEX | cut HEX | error
 * TEXT check SEED TOKENS     the same, every mask compared with every token tried alone ok TOKENS |
 * differs TEXT forced HEX            what has to follow these bytes       HEX time SEED TOKENS
 * masks of a random walk               N MEDIAN_NS P99_NS MAX_NS BYTES
 *
 * Bytes are written in hexadecimal.
 */
#define _GNU_SOURCE /* getline */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/system.h"
#include "grammar/token_table.h"
#include "skv/text.h"

typedef struct tool {
    skv_grammar *grammar;
    skv_token_table *table;
    skv_matcher *fresh; /* has read nothing */
    uint32_t *bits;     /* [n_words] */
    size_t n_words;
} tool;

static bool byte_token(void *user, uint32_t id, const char **bytes, size_t *n)
{
    static const char *const pairs[] = {"\"}",      "\":",    "\",",  "{\"", "[[",
                                        "]]",       "\n  ",   "12",   "ab",  "abc",
                                        "\xc3\xa4", "\xa4\"", ", \"", ": ",  "true"};
    char *byte = user;
    if (id >= 256 + sizeof pairs / sizeof pairs[0]) return false;
    *byte = (char)id;
    *bytes = id < 256 ? byte : pairs[id - 256];
    *n = id < 256 ? 1 : strlen(*bytes);
    return true;
}

/* A matcher is of one table: a new one wants the grammar again. */
static skv_status use_table(tool *t, skv_token_table *table)
{
    skv_matcher_free(t->fresh);
    t->fresh = NULL;
    skv_token_table_free(t->table);
    t->table = table;
    free(t->bits);
    t->n_words = table->n_tokens / 32 + 1;
    t->bits = calloc(t->n_words, sizeof *t->bits);
    return t->bits ? SKV_OK : SKV_MEMORY;
}

static skv_status use_vocab(tool *t, const char *path, skv_error *err)
{
    skv_vocab *vocab = NULL;
    skv_token_table *table = NULL;
    skv_status status = skv_vocab_open(path, &vocab, err);
    if (status == SKV_OK) status = skv_token_table_create(vocab, NULL, 0, &table, err);
    skv_vocab_close(vocab);
    return status == SKV_OK ? use_table(t, table) : status;
}

static skv_status use_bytes(tool *t, skv_error *err)
{
    char byte;
    skv_token_table *table = NULL;
    skv_status status = skv_token_table_build(272, byte_token, &byte, &table, err);
    if (status != SKV_OK) return status;
    skv_token_table_add_end(table, 271);
    return use_table(t, table);
}

static size_t unhex(char *text)
{
    size_t n = strlen(text) / 2;
    for (size_t i = 0; i < n; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        text[i] = (char)strtoul(pair, NULL, 16);
    }
    text[n] = '\0';
    return n;
}

static void print_hex(const char *word, const char *bytes, size_t n)
{
    printf("%s ", word);
    for (size_t i = 0; i < n; i++) printf("%02x", (unsigned)(unsigned char)bytes[i]);
    printf("\n");
}

static skv_status use_grammar(tool *t, char *arguments, skv_error *err)
{
    static const char *const kinds[] = {"object", "schema", "regex", "gbnf", "choice", "parts"};
    char *text = strchr(arguments, ' ');
    if (text) *text++ = '\0';
    size_t n = text ? unhex(text) : 0, kind = 0;
    while (kind < 5 && strcmp(kinds[kind], arguments) != 0) kind++;
    skv_matcher_free(t->fresh);
    skv_grammar_free(t->grammar);
    t->fresh = NULL;
    t->grammar = NULL;
    skv_status status =
        skv_grammar_compile((skv_grammar_kind)kind, text ? text : "", n, NULL, &t->grammar, err);
    if (status != SKV_OK) return status;
    return skv_matcher_create(t->grammar, t->table, NULL, &t->fresh, err);
}

static void match(const tool *t, char *hex)
{
    skv_matcher *m = NULL;
    skv_error err;
    size_t n = unhex(hex);
    if (skv_matcher_copy(t->fresh, &m, &err) != SKV_OK) return;
    bool alive = skv_matcher_accept_bytes(m, hex, n, &err) == SKV_OK;
    printf("%s\n", !alive ? "no" : skv_matcher_is_complete(m) ? "complete" : "alive");
    skv_matcher_free(m);
}

static void forced(const tool *t, char *hex)
{
    skv_matcher *m = NULL;
    skv_error err;
    char out[256];
    size_t n = unhex(hex);
    if (skv_matcher_copy(t->fresh, &m, &err) != SKV_OK) return;
    n = skv_matcher_accept_bytes(m, hex, n, &err) == SKV_OK ? skv_matcher_forced(m, out, sizeof out)
                                                            : 0;
    print_hex("", out, n);
    skv_matcher_free(m);
}

static bool allowed(const tool *t, size_t id)
{
    return (t->bits[id / 32] >> id % 32 & 1) != 0;
}

/* A token that brings JSON to its end, of the vocabulary of bytes; -1 when there is none. */
static int32_t pick_closing(const tool *t)
{
    for (const char *c = "\"}]ntf0123456789"; *c != '\0'; c++) {
        if (allowed(t, (size_t)*c)) return *c;
    }
    return -1;
}

/* A random allowed token; -1 when there is none. */
static int32_t pick(const tool *t, const skv_matcher *m, skv_rng *rng, bool hurry)
{
    size_t n = 0;
    bool end = skv_matcher_is_complete(m) && (hurry || skv_rng_below(rng, 4) == 0);
    int32_t chosen = -1;
    if (!end && t->table->n_tokens < 300 && (hurry || skv_rng_below(rng, 8) == 0)) {
        chosen = pick_closing(t);
        if (chosen >= 0) return chosen;
    }
    for (size_t id = 0; id < t->table->n_tokens; id++) {
        if (!allowed(t, id)) continue;
        if (end && skv_token_table_is_end(t->table, id)) return (int32_t)id;
        if (skv_rng_below(rng, ++n) == 0) chosen = (int32_t)id;
    }
    return chosen;
}

/* Every token on its own copy: what the mask has to say. */
static bool mask_is_right(const tool *t, const skv_matcher *m)
{
    for (size_t id = 0; id < t->table->n_tokens; id++) {
        skv_matcher *one = NULL;
        skv_error err;
        bool said = allowed(t, id);
        if (skv_matcher_copy(m, &one, &err) != SKV_OK) return false;
        bool fits = skv_matcher_accept(one, (int32_t)id, NULL, NULL, &err) == SKV_OK;
        skv_matcher_free(one);
        if (fits == said) continue;
        printf("differs token %zu: mask %d, alone %d\n", id, said, fits);
        return false;
    }
    return true;
}

typedef struct walked {
    char text[1 << 16];
    size_t n, n_tokens, n_wanted;
    uint64_t *ns; /* owned by the caller: of each mask; NULL: not wanted */
    bool ended;
} walked;

static bool step(const tool *t, skv_matcher *m, skv_rng *rng, bool check, walked *w)
{
    skv_error err = {0};
    uint64_t before = skv_clock_ns();
    skv_status status = skv_matcher_mask(m, t->bits, t->table->n_tokens, &err);
    if (w->ns) w->ns[w->n_tokens] = skv_clock_ns() - before;
    if (status != SKV_OK) {
        printf("error %s\n", err.text);
        return false;
    }
    if (check && !mask_is_right(t, m)) return false;
    int32_t id = pick(t, m, rng, w->n_tokens > w->n_wanted / 2);
    if (id < 0 || skv_matcher_accept(m, id, NULL, NULL, &err) != SKV_OK) {
        if (id < 0 && skv_matcher_is_complete(m)) {
            w->ended = true;
            return true;
        }
        printf("error token %d: %s\n", (int)id, err.text);
        return false;
    }
    w->n_tokens++;
    w->ended = skv_matcher_is_finished(m);
    size_t n = t->table->starts[id + 1] - t->table->starts[id];
    if (skv_token_table_is_end(t->table, (size_t)id) || w->n + n > sizeof w->text) return true;
    memcpy(w->text + w->n, t->table->bytes + t->table->starts[id], n);
    w->n += n;
    return true;
}

static bool walk(const tool *t, const char *arguments, bool check, walked *w)
{
    char *rest;
    skv_rng rng;
    skv_error err;
    skv_matcher *m = NULL;
    bool ok = true;
    skv_rng_init(&rng, strtoull(arguments, &rest, 10));
    size_t n_tokens = w->n_wanted = strtoul(rest, NULL, 10);
    if (skv_matcher_copy(t->fresh, &m, &err) != SKV_OK) return false;
    for (size_t i = 0; i < n_tokens && ok && !w->ended; i++) ok = step(t, m, &rng, check, w);
    skv_matcher_free(m);
    return ok;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Walks from several seeds until there are enough masks. */
static void measure(const tool *t, const char *arguments)
{
    char *rest, line[64];
    unsigned long seed = strtoul(arguments, &rest, 10), n = strtoul(rest, NULL, 10);
    uint64_t *ns = calloc(n + 1, sizeof *ns);
    walked *w = calloc(1, sizeof *w);
    size_t done = 0;
    for (size_t empty = 0; done < n && empty < 100 && ns && w; seed++) {
        *w = (walked){.ns = ns + done};
        (void)snprintf(line, sizeof line, "%lu %zu", seed, n - done);
        if (!walk(t, line, false, w)) break;
        done += w->n_tokens;
        empty += w->n_tokens == 0;
    }
    if (done > 0) {
        qsort(ns, done, sizeof *ns, by_value);
        printf("%zu %llu %llu %llu %zu\n", done, (unsigned long long)ns[done / 2],
               (unsigned long long)ns[done * 99 / 100], (unsigned long long)ns[done - 1],
               skv_grammar_bytes(t->grammar));
    }
    free(ns);
    free(w);
}

static void run(tool *t, char *command, char *arguments)
{
    skv_error err = {0};
    bool vocab = strcmp(command, "vocab") == 0, grammar = strcmp(command, "grammar") == 0;
    if (vocab || grammar) {
        skv_status status = vocab ? use_vocab(t, arguments, &err) : use_grammar(t, arguments, &err);
        printf("%s %s\n", status == SKV_OK ? "ok" : "error", err.text);
        return;
    }
    if (!t->fresh) {
        printf("error no grammar\n");
        return;
    }
    if (strcmp(command, "match") == 0) match(t, arguments);
    if (strcmp(command, "forced") == 0) forced(t, arguments);
    if (strcmp(command, "time") == 0) measure(t, arguments);
    bool check = strcmp(command, "check") == 0;
    if (check || strcmp(command, "walk") == 0) {
        walked *w = calloc(1, sizeof *w);
        if (w && walk(t, arguments, check, w)) {
            if (check) {
                printf("ok %zu\n", w->n_tokens);
            } else {
                print_hex(w->ended ? "complete" : "cut", w->text, w->n);
            }
        }
        free(w);
    }
}

int main(void)
{
    tool t = {0};
    skv_error err = {0};
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    bool ready = use_bytes(&t, &err) == SKV_OK;
    while (ready && (n = getline(&line, &capacity, stdin)) > 0) {
        if (line[n - 1] == '\n') line[n - 1] = '\0';
        char *arguments = strchr(line, ' ');
        if (arguments) *arguments++ = '\0';
        run(&t, line, arguments ? arguments : line + strlen(line));
        fflush(stdout);
    }
    free(line);
    free(t.bits);
    skv_matcher_free(t.fresh);
    skv_grammar_free(t.grammar);
    skv_token_table_free(t.table);
    return 0;
}
