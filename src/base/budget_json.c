/* Estimates the memory of JSON before a reader parses it: see skv_budget_json in skv/budget.h. */
#include "base/size.h"
#include "skv/budget.h"

/*
 * Bytes on the heap, of the reader (jansson on glibc) and rounded up: measured as 234 for an empty
 * object, 138 for an empty array, 43 for a number, 91 and its length for a text, 133 and its
 * length for a member, each with its slot in the array around it.
 */
enum {
    OBJECT_BYTES = 240,
    ARRAY_BYTES = 144,
    VALUE_BYTES = 64, /* a number, or any value's slot */
    KEY_BYTES = 96,
    TEXT_BYTES = 64,  /* beside its characters */
    WORD_GROWTH = 4,  /* the longest text is held in a buffer that doubles while it is read */
    BYTES_A_UNIT = 4, /* of text, in a unit of work */
    VALUE_UNITS = 8
};

/* The text as it is scanned. */
typedef struct scan {
    size_t depth, deepest;
    size_t n_values;
    skv_json_bytes bytes;
    size_t word, longest; /* where the current text or number begins; the longest one */
} scan;

static void open_container(scan *s, size_t bytes)
{
    s->depth++;
    s->deepest = skv_max_size(s->deepest, s->depth);
    s->bytes.values += bytes + VALUE_BYTES;
    s->n_values++;
}

static void take_char(scan *s, char c)
{
    switch (c) {
    case '{': open_container(s, OBJECT_BYTES); break;
    case '[': open_container(s, ARRAY_BYTES); break;
    case '}':
    case ']': s->depth -= s->depth > 0; break;
    case ',':
        s->bytes.values += VALUE_BYTES;
        s->n_values++;
        break;
    case ':':
        s->bytes.values += KEY_BYTES;
        s->n_values++;
        break;
    default: break;
    }
}

/* The index after the text that begins with the quotation mark at i. */
static size_t skip_text(const char *text, size_t n, size_t i)
{
    for (i++; i < n && text[i] != '"'; i++) i += text[i] == '\\';
    return skv_min_size(n, i + 1);
}

static bool ends_word(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ',' || c == ':' || c == '[' ||
           c == ']' || c == '{' || c == '}';
}

static scan scan_json(const char *text, size_t n)
{
    scan s = {.bytes = {.values = VALUE_BYTES}};
    for (size_t i = 0; i < n;) {
        if (text[i] == '"') {
            size_t end = skip_text(text, n, i);
            s.bytes.values += TEXT_BYTES + (end - i);
            s.longest = skv_max_size(s.longest, end - i);
            s.word = i = end;
            continue;
        }
        take_char(&s, text[i]);
        i++;
        if (ends_word(text[i - 1])) s.word = i;
        s.longest = skv_max_size(s.longest, i - s.word);
    }
    s.bytes.reader = WORD_GROWTH * s.longest;
    return s;
}

bool skv_budget_json(skv_budget *budget, const char *text, size_t n, skv_json_bytes *bytes)
{
    if (!skv_budget_work(budget, n / BYTES_A_UNIT)) return false;
    scan s = scan_json(text, n);
    size_t depth = budget->depth;
    bool deep = s.deepest > budget->max.depth || depth > budget->max.depth - s.deepest;
    if (deep) budget->depth = budget->max.depth;
    bool fits = deep ? skv_budget_enter(budget)
                     : skv_budget_work(budget, s.n_values * VALUE_UNITS) &&
                           skv_budget_take(budget, s.bytes.values + s.bytes.reader);
    budget->depth = depth;
    if (fits) *bytes = s.bytes;
    return fits;
}
