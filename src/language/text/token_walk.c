/* Walking along a text with tokens: see tokenizer.h. */
#include <string.h>

#include "text/tokenizer_impl.h"

enum { TOKEN_BYTES_MAX = 1 << 16 };

#define SPACE_SIGN "\xe2\x96\x81" /* U+2581 */

typedef struct walk {
    const skv_tokenizer *t;
    const int32_t *ids; /* [n] */
    size_t n;
    const char *text; /* [n_text] */
    size_t n_text;
    size_t *ends;      /* [n] */
    bool adds_spaces;  /* the tokenizer does, before a piece of text */
    bool folds_spaces; /* a space and U+2581 are the same to it */
    skv_buf bytes;     /* of one token */
} walk;

/* Changes by the tokenizer at the start of a piece of the text. */
typedef struct piece_start {
    bool drops_space;  /* the first token has a space that the text has not */
    bool skips_blanks; /* the text has white space that no token has */
} piece_start;

size_t skv_token_walk_prefix(const skv_tokenizer *t)
{
    return t->n_prefix;
}

/* Whether the tokenizer puts spaces before pieces of text. */
static bool adds_spaces(const skv_tokenizer *t)
{
    if (t->spm.active) return t->spm.add_prefix && !t->spm.space_as_suffix;
    for (size_t i = 0; i < t->normalizer.n_steps; i++) {
        if (t->normalizer.steps[i].kind == SKV_NORM_PREPEND) return true;
    }
    for (size_t i = 0; i < t->pretokenizer.n_steps; i++) {
        const skv_pre_step *step = &t->pretokenizer.steps[i];
        bool metaspace = step->kind == SKV_PRE_METASPACE && step->prepend != SKV_PREPEND_NEVER;
        if (metaspace || step->kind == SKV_PRE_PREFIX) return true;
    }
    return false;
}

/* Whether the tokenizer reads spaces as U+2581, so that its tokens spell both as a space. */
static bool folds_spaces(const skv_tokenizer *t)
{
    if (t->spm.active) return t->spm.escape;
    for (size_t i = 0; i < t->normalizer.n_steps; i++) {
        const skv_norm_step *step = &t->normalizer.steps[i];
        bool signs = step->kind == SKV_NORM_REPLACE && step->n_to == strlen(SPACE_SIGN) &&
                     memcmp(step->to, SPACE_SIGN, step->n_to) == 0;
        if (signs && step->n_from == 1 && step->from[0] == ' ') return true;
    }
    for (size_t i = 0; i < t->pretokenizer.n_steps; i++) {
        if (t->pretokenizer.steps[i].kind == SKV_PRE_METASPACE) return true;
    }
    return false;
}

/* Whether a piece of text ends at this token: it is found in the text as it is. */
static bool is_mark(const walk *w, int32_t id)
{
    const unsigned marks = SKV_TOKEN_LITERAL | SKV_TOKEN_SPECIAL | SKV_TOKEN_ADDED;
    return id >= 0 && skv_vocab_has(&w->t->vocab, (uint32_t)id) &&
           (w->t->vocab.flags[id] & marks) != 0;
}

/* The added token if it takes white space; NULL: it takes none. Few do, and a text has many others.
 */
static const skv_added_token *find_stripping(const skv_tokenizer *t, int32_t id)
{
    if (id < 0 || !skv_vocab_has(&t->vocab, (uint32_t)id)) return NULL;
    if ((t->vocab.flags[id] & SKV_TOKEN_STRIPS) == 0) return NULL;
    for (size_t i = 0; i < t->added.n; i++) {
        if ((int32_t)t->added.tokens[i].id == id) return &t->added.tokens[i];
    }
    return NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t skip_blanks(const walk *w, size_t at)
{
    while (at < w->n_text && is_blank(w->text[at])) at++;
    return at;
}

/* The same where the text may have U+2581 for a space. */
static size_t pass_folded(const walk *w, size_t at, const char *bytes, size_t n)
{
    const size_t n_sign = strlen(SPACE_SIGN);
    for (size_t i = 0; i < n; i++) {
        if (at < w->n_text && w->text[at] == bytes[i]) {
            at++;
        } else if (bytes[i] == ' ' && w->n_text - at >= n_sign &&
                   memcmp(w->text + at, SPACE_SIGN, n_sign) == 0) {
            at += n_sign;
        } else {
            return SIZE_MAX;
        }
    }
    return at;
}

/* Where the text goes on behind these bytes; SIZE_MAX: it has others. */
static size_t pass(const walk *w, size_t at, const char *bytes, size_t n)
{
    if (n <= w->n_text - at && (n == 0 || memcmp(w->text + at, bytes, n) == 0)) return at + n;
    return w->folds_spaces ? pass_folded(w, at, bytes, n) : SIZE_MAX;
}

/* Passes a token that ends a piece: bytes [n]. */
static size_t pass_mark(const walk *w, int32_t id, size_t at, const char *bytes, size_t n)
{
    size_t end = pass(w, at, bytes, n);
    const skv_added_token *added = end == SIZE_MAX ? find_stripping(w->t, id) : NULL;
    if (!added || !added->lstrip) return end;
    return pass(w, skip_blanks(w, at), bytes, n);
}

static bool spell(walk *w, size_t i)
{
    skv_buf_clear(&w->bytes);
    return skv_tokenizer_bytes(w->t, w->ids[i], &w->bytes);
}

/* Walks from token `first` past the next mark; returns the token where it stopped. */
static size_t walk_piece(walk *w, size_t first, size_t at, piece_start start)
{
    if (start.skips_blanks) at = skip_blanks(w, at);
    for (size_t i = first; i < w->n; i++) {
        if (!spell(w, i)) return i;
        bool mark = is_mark(w, w->ids[i]);
        const char *bytes = w->bytes.size > 0 ? w->bytes.data : "";
        size_t n = w->bytes.size;
        if (i == first && start.drops_space && n > 0 && bytes[0] == ' ') {
            bytes++;
            n--;
        }
        size_t end = mark ? pass_mark(w, w->ids[i], at, bytes, n) : pass(w, at, bytes, n);
        if (end == SIZE_MAX) return i;
        w->ends[i] = at = end;
        if (mark) return i + 1;
    }
    return w->n;
}

/* The reading of a piece that gets farthest; as it is spelled, where several do. */
static size_t walk_best(walk *w, size_t first, size_t at, bool after_rstrip)
{
    static const piece_start starts[] = {
        {false, false}, {true, false}, {false, true}, {true, true}};
    size_t best = first, i_best = 0, last = 0;
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        if (starts[i].drops_space && !w->adds_spaces) continue;
        if (starts[i].skips_blanks && !after_rstrip) continue;
        size_t stop = walk_piece(w, first, at, starts[i]);
        last = i;
        if (stop > best) {
            best = stop;
            i_best = i;
        }
        if (stop == w->n || (stop > first && is_mark(w, w->ids[stop - 1]))) break;
    }
    if (best > first && i_best != last) (void)walk_piece(w, first, at, starts[i_best]);
    return best;
}

skv_status skv_token_walk(const skv_tokenizer *t, const int32_t *ids, size_t n, const char *text,
                          size_t n_text, size_t *ends, size_t *n_walked, skv_error *err)
{
    walk w = {.t = t,
              .ids = ids,
              .n = n,
              .text = text,
              .n_text = n_text,
              .ends = ends,
              .adds_spaces = adds_spaces(t),
              .folds_spaces = folds_spaces(t)};
    skv_buf_init(&w.bytes, TOKEN_BYTES_MAX);
    size_t i = 0;
    while (i < n) {
        const skv_added_token *before = i > 0 ? find_stripping(t, ids[i - 1]) : NULL;
        size_t at = i > 0 ? ends[i - 1] : 0;
        size_t stop = walk_best(&w, i, at, before && before->rstrip);
        if (stop == i) break;
        i = stop;
        if (!is_mark(&w, ids[i - 1])) break;
    }
    bool failed = w.bytes.failed;
    skv_buf_release(&w.bytes);
    SKV_REQUIRE(!failed, err, SKV_MEMORY, "text: no memory to walk along %zu bytes", n_text);
    *n_walked = i;
    return SKV_OK;
}
