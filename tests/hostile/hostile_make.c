/* Making hostile inputs: choosing a shape, drawing, mutating. See hostile.h. */
#include "hostile_maker.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[HOSTILE_KINDS] = {"gbnf",  "schema",   "regex",  "choice",
                                                      "parts", "template", "history"};

const char *hostile_kind_name(hostile_kind kind)
{
    return kind < HOSTILE_KINDS ? kind_names[kind] : "unknown";
}

hostile_kind hostile_kind_of(const char *name)
{
    size_t i = 0;
    while (i < HOSTILE_KINDS && strcmp(kind_names[i], name) != 0) i++;
    return (hostile_kind)i;
}

/* ---- drawing ---- */

size_t hostile_below(hostile_maker *m, size_t n)
{
    return n > 0 ? (size_t)skv_rng_below(&m->rng, n) : 0;
}

bool hostile_chance(hostile_maker *m, unsigned percent)
{
    return skv_rng_below(&m->rng, 100) < percent;
}

size_t hostile_size(hostile_maker *m, size_t lo, size_t hi)
{
    double u = skv_rng_uniform(&m->rng);
    if (hi <= lo) return lo;
    double top = (double)lo + (double)(hi - lo) * m->scale, low = (double)lo;
    return (size_t)(exp(log(low + 1) + u * (log(top + 1) - log(low + 1))) - 1 + 0.5);
}

size_t hostile_limit(hostile_maker *m, size_t limit)
{
    size_t any = hostile_size(m, 1, 2 * limit), off = hostile_below(m, 5);
    bool near = hostile_chance(m, 50);
    if (!near || m->scale < 1) return any;
    return limit + off > 2 ? limit + off - 2 : 1;
}

uint64_t hostile_times(hostile_maker *m)
{
    static const uint64_t often[] = {
        0,    1,     2,     3,     4,     16,     64,     100,        255,        256,       1000,
        1001, 32768, 65535, 65536, 99999, 100000, 100001, 4294967295, 4294967296, UINT64_MAX};
    size_t i = hostile_below(m, sizeof often / sizeof often[0]), any = hostile_size(m, 1, 100000);
    bool small = hostile_chance(m, 50);
    if (hostile_chance(m, 60) || m->scale < 1) return small ? any % 12 : any;
    return often[i];
}

/* ---- writing ---- */

void hostile_put(hostile_maker *m, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (n > 0) (void)skv_buf_append(m->to, line, (size_t)n < sizeof line ? (size_t)n : 511);
}

void hostile_fill(hostile_maker *m, const char *text, size_t n)
{
    for (size_t i = 0; i < n && m->to->size < m->to->max; i++) (void)skv_buf_text(m->to, text);
}

void hostile_name(hostile_maker *m, size_t i, size_t n_bytes)
{
    char digits[16];
    size_t n = 0;
    do {
        digits[n++] = (char)('a' + i % 25);
        i /= 25;
    } while (i > 0);
    for (size_t k = n; k < n_bytes; k++) (void)skv_buf_byte(m->to, 'z');
    while (n > 0) (void)skv_buf_byte(m->to, digits[--n]);
}

bool hostile_full(const hostile_maker *m)
{
    return m->to->size >= m->room;
}

size_t hostile_left(const hostile_maker *m, size_t end)
{
    return end > m->to->size ? end - m->to->size : 0;
}

void hostile_suffix(hostile_maker *m)
{
    unsigned long long a = hostile_times(m), b = hostile_times(m);
    switch (hostile_below(m, 9)) {
    case 0: hostile_put(m, "*"); break;
    case 1: hostile_put(m, "+"); break;
    case 2: hostile_put(m, "?"); break;
    case 3: hostile_put(m, "{%llu}", a); break;
    case 4: hostile_put(m, "{%llu,}", a); break;
    case 5: hostile_put(m, "{0,%llu}", a); break;
    case 6: hostile_put(m, "{%llu,%llu}", a < b ? a : b, a < b ? b : a); break;
    default: break;
    }
}

/* ---- references ---- */

size_t hostile_target(hostile_maker *m, hostile_net net, size_t i, size_t n)
{
    size_t any = hostile_below(m, n), later = i + 1 + hostile_below(m, n - i);
    switch (net) {
    case HOSTILE_NET_ONE: return i + 1 < n ? n - 1 : n;
    case HOSTILE_NET_CHAIN: return i + 1;
    case HOSTILE_NET_CYCLE: return (i + 1) % n;
    case HOSTILE_NET_TREE: return 2 * i + 1 + any % 2 < n ? 2 * i + 1 + any % 2 : n;
    case HOSTILE_NET_DOWN: return later < n ? later : n;
    case HOSTILE_NET_ANY: return any;
    case HOSTILE_NET_NONE:
    case HOSTILE_NETS: break;
    }
    return n;
}

/* ---- mutations ---- */

static void mutate(hostile_maker *m, skv_buf *text)
{
    static const char *const odd[] = {
        "(",        ")",   "[",  "]",  "{",  "}",    "\"", "\\",       "|",    "*", "::=", "\n",
        "{999999}", "\\u", "{%", "%}", "{{", "\xff", "$",  "\xf0\x9f", "null", ":", ",",   "#"};
    for (size_t n = hostile_size(m, 1, 16); n > 0 && text->size > 0; n--) {
        size_t at = hostile_below(m, text->size);
        size_t piece = hostile_size(m, 1, text->size - at);
        const char *new = odd[hostile_below(m, sizeof odd / sizeof odd[0])];
        switch (hostile_below(m, 5)) {
        case 0: text->size = at; break;
        case 1:
            memmove(text->data + at, text->data + at + piece, text->size - at - piece);
            text->size -= piece;
            break;
        case 2: text->data[at] = new[0]; break;
        case 3:
            if (strlen(new) <= text->size - at) memcpy(text->data + at, new, strlen(new));
            break;
        default:
            for (size_t k = 0; k < piece; k++) (void)skv_buf_byte(text, ' ');
            if (text->failed) return;
            memmove(text->data + at + piece, text->data + at, text->size - at - piece);
            break;
        }
        text->data[text->size] = '\0';
    }
}

/* ---- one case ---- */

static const hostile_shape *const tables[HOSTILE_KINDS] = {
    hostile_gbnf_shapes,  hostile_schema_shapes,   hostile_regex_shapes,  hostile_choice_shapes,
    hostile_parts_shapes, hostile_template_shapes, hostile_history_shapes};

static const hostile_shape *choose(hostile_maker *m, hostile_kind kind, const char *only)
{
    const hostile_shape *table = tables[kind];
    size_t sum = 0, i = 0;
    for (size_t k = 0; table[k].name; k++) sum += table[k].weight;
    size_t left = hostile_below(m, sum);
    for (; left >= table[i].weight; i++) left -= table[i].weight;
    for (size_t k = 0; only && table[k].name; k++) {
        if (strcmp(table[k].name, only) == 0) i = k;
    }
    return &table[i];
}

void hostile_make(hostile_kind kind, uint64_t seed, double scale, const char *shape,
                  hostile_case *out)
{
    hostile_maker m = {.scale = scale, .made = out, .to = &out->text};
    *out = (hostile_case){.kind = kind, .seed = seed, .scale = scale};
    skv_buf_init(&out->text, kind == HOSTILE_HISTORY ? HOSTILE_HISTORY_MAX
                                                     : HOSTILE_TEXT_MAX + HOSTILE_TEXT_MAX / 4);
    skv_buf_init(&out->more, HOSTILE_MORE_MAX);
    skv_rng_init(&m.rng, skv_mix64(seed ^ (uint64_t)kind << 56));
    m.room =
        hostile_chance(&m, 30) ? HOSTILE_TEXT_MAX - 64 : hostile_size(&m, 64, HOSTILE_TEXT_MAX);
    const hostile_shape *chosen = choose(&m, kind, shape);
    out->shape = chosen->name;
    out->ordinary = strncmp(chosen->name, "ordinary", 8) == 0;
    bool change = hostile_chance(&m, 15);
    chosen->make(&m);
    out->mutated = change && !out->ordinary;
    if (out->mutated) mutate(&m, &out->text);
}

void hostile_case_release(hostile_case *c)
{
    skv_buf_release(&c->text);
    skv_buf_release(&c->more);
}
