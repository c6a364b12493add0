/*
 * Copying: repeated random segments (the first stage of the curriculum, which forms the attention
 * that lookup needs), and passages to be repeated exactly, or with changes.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "data/doc_writer.h"

enum { QUESTION_MAX = 256, ANSWER_MAX = 1024, WORDS_MAX = 16, LINES_MAX = 256 };

/* ---- repeat ---- */

/* The kind of units in a segment. */
typedef enum unit_kind {
    UNIT_WORD,
    UNIT_SYLLABLES,
    UNIT_DIGIT,
    UNIT_LETTER,
    UNIT_MIXED, /* of those above */
    UNIT_TOKEN
} unit_kind;

/* A word that is one token of the vocabulary, any of them alike; a noun where chance finds none. */
static void append_token(skv_doc_writer *w, skv_buf *out)
{
    enum { TRIES = 32 };
    for (size_t i = 0; w->tokenizer && i < TRIES; i++) {
        const int32_t id = (int32_t)skv_doc_below(w, skv_tokenizer_size(w->tokenizer));
        const size_t before = out->size;
        if (skv_tokenizer_is_special(w->tokenizer, id)) continue;
        if (!skv_tokenizer_piece(w->tokenizer, id, out)) continue;
        size_t n = before + 1;
        while (n < out->size && isalpha((unsigned char)out->data[n])) n++;
        if (out->size > before + 1 && out->data[before] == ' ' && n == out->size) return;
        out->size = before;
    }
    (void)skv_buf_printf(out, " %s", skv_doc_noun(w));
}

static void append_unit(skv_doc_writer *w, unit_kind kind, skv_buf *out)
{
    skv_doc_word word;
    if (kind == UNIT_MIXED) kind = (unit_kind)skv_doc_below(w, UNIT_MIXED);
    switch (kind) {
    case UNIT_SYLLABLES:
        skv_doc_syllables(w, 1 + skv_doc_below(w, 2), &word);
        (void)skv_buf_printf(out, " %s", word.text);
        break;
    case UNIT_DIGIT: (void)skv_buf_byte(out, (char)('0' + skv_doc_below(w, 10))); break;
    case UNIT_LETTER: (void)skv_buf_printf(out, " %c", (char)('a' + skv_doc_below(w, 26))); break;
    case UNIT_TOKEN: append_token(w, out); break;
    case UNIT_WORD:
    case UNIT_MIXED:
        (void)skv_buf_printf(out, " %s",
                             skv_doc_below(w, 2) == 0 ? skv_doc_noun(w)
                                                      : skv_doc_pick(w, SKV_WORDS_ADJECTIVES));
        break;
    }
}

/* The longest segment that the room takes twice. */
static size_t longest_segment(const skv_doc_writer *w)
{
    return skv_max_size(3, (w->budget - w->used) * 2 / 5);
}

/* Repeats one segment until about `wanted` tokens are written. */
static void write_period(skv_doc_writer *w, unit_kind kind, size_t wanted)
{
    skv_buf *segment = &w->scratch;
    for (size_t n = 0; n < wanted && !segment->failed;) {
        const size_t before = segment->size;
        append_unit(w, kind, segment);
        n += skv_doc_count(w, segment->data + before, segment->size - before);
    }
    if (segment->failed) return;
    bool loss = false;
    while (skv_doc_piece(w, loss, segment->data, segment->size)) loss = true;
    const size_t cost = skv_doc_count(w, segment->data, segment->size);
    size_t n = segment->size * (w->budget - w->used) / (cost + 1); /* about the number that still
                                                                    * fits */
    while (n > 0 && segment->data[n] != ' ') n--;
    if (n > 0) (void)skv_doc_piece(w, loss, segment->data, n);
}

/* Writes several lines, then repeats some: the first unit identifies the line. */
static void write_recall(skv_doc_writer *w, unit_kind kind)
{
    skv_buf *text = &w->scratch;
    size_t cue[LINES_MAX], start[LINES_MAX + 1], n = 0;
    const size_t n_units = 2 + skv_doc_below(w, 6);
    const size_t half = w->used + (w->budget - w->used) * (1 + skv_doc_below(w, 3)) / 5;
    while (n < LINES_MAX && w->used < half) {
        skv_doc_word first;
        skv_doc_new_key(w, SKV_KEY_PSEUDO, &first);
        start[n] = text->size;
        (void)skv_buf_printf(text, "\n%s", first.text);
        cue[n] = text->size;
        for (size_t i = 0; i < n_units; i++) append_unit(w, kind, text);
        if (text->failed || w->status != SKV_OK) return;
        if (!skv_doc_piece(w, false, text->data + start[n], text->size - start[n])) break;
        start[++n] = text->size;
    }
    bool more = n > 0;
    while (more) {
        const size_t i = skv_doc_below(w, n);
        const size_t end = start[i + 1];
        more = skv_doc_count(w, text->data + start[i], end - start[i]) + w->used + 2 <= w->budget &&
               skv_doc_piece(w, false, text->data + start[i], cue[i] - start[i]) &&
               skv_doc_piece(w, true, text->data + cue[i], end - cue[i]);
    }
}

void skv_doc_write_repeat(skv_doc_writer *w)
{
    const unit_kind kind = (unit_kind)skv_doc_below(w, UNIT_MIXED + 1);
    if (skv_doc_below(w, 3) == 0) {
        write_recall(w, kind);
    } else {
        write_period(w, kind, skv_doc_scale(w, 3, longest_segment(w)));
    }
}

/* Words are uniformly distributed and segments have any length: only finding the earlier occurrence
 * lowers the loss, which is why these tasks come first. */
void skv_doc_write_tokens(skv_doc_writer *w)
{
    write_period(w, UNIT_TOKEN, (size_t)skv_doc_between(w, 3, (int64_t)longest_segment(w)));
}

/* ---- passages ---- */

typedef struct passage {
    size_t n;
    const char *words[WORDS_MAX]; /* no two alike */
} passage;

static void draw_passage(skv_doc_writer *w, passage *p, size_t n)
{
    p->n = 0;
    while (p->n < n) {
        const char *word =
            skv_doc_below(w, 3) == 0 ? skv_doc_pick(w, SKV_WORDS_ADJECTIVES) : skv_doc_noun(w);
        bool again = false;
        for (size_t i = 0; i < p->n; i++) again = again || strcmp(p->words[i], word) == 0;
        if (!again) p->words[p->n++] = word;
    }
}

static void join(const char *const *words, size_t n, char out[ANSWER_MAX])
{
    size_t size = 0;
    out[0] = 0;
    for (size_t i = 0; i < n && size < ANSWER_MAX; i++) {
        const int more =
            snprintf(out + size, ANSWER_MAX - size, "%s%s", i > 0 ? " " : "", words[i]);
        size += (size_t)more;
    }
}

/* The name's set decides whether training may see the passage; the words alone could not. */
static size_t write_passages(skv_doc_writer *w, passage *passages, size_t *at, skv_doc_word *names)
{
    size_t n = 0;
    const size_t words_max = w->budget < 160 ? 6 : 12;
    while (n < LINES_MAX && w->status == SKV_OK) {
        char text[ANSWER_MAX];
        draw_passage(w, &passages[n], 4 + skv_doc_below(w, words_max - 3));
        skv_doc_new_key(w, SKV_KEY_CODE, &names[n]);
        join(passages[n].words, passages[n].n, text);
        if (!skv_doc_line(w, &at[n], "[%s] %s\n", names[n].text, text)) break;
        n++;
    }
    return n;
}

/* A question about the passage of this name, and its answer. */
typedef void question_maker(skv_doc_writer *w, const passage *p, const char *name,
                            char question[QUESTION_MAX], char answer[ANSWER_MAX]);

/* Passages, and questions about them as long as there is room. */
static void write_document(skv_doc_writer *w, question_maker *make)
{
    passage passages[LINES_MAX];
    size_t at[LINES_MAX];
    skv_doc_word names[LINES_MAX];
    const size_t n = write_passages(w, passages, at, names);
    bool more = n > 0;
    while (more) {
        const size_t i = skv_doc_below(w, n);
        char question[QUESTION_MAX], answer[ANSWER_MAX];
        make(w, &passages[i], names[i].text, question, answer);
        more = skv_doc_ask(w, at[i], question, answer);
    }
}

static void make_copy(skv_doc_writer *w, const passage *p, const char *name,
                      char question[QUESTION_MAX], char answer[ANSWER_MAX])
{
    (void)w;
    snprintf(question, QUESTION_MAX, "Repeat passage %s.", name);
    join(p->words, p->n, answer);
}

void skv_doc_write_copy(skv_doc_writer *w)
{
    write_document(w, make_copy);
}

/* ---- changes ---- */

typedef enum edit_kind {
    EDIT_REVERSE,
    EDIT_REPLACE,
    EDIT_WITHOUT,
    EDIT_FIRST,
    EDIT_LAST,
    EDIT_AFTER,
    EDIT_COUNT
} edit_kind;

/* Fills question and answer for one passage. */
static void make_edit(skv_doc_writer *w, const passage *p, const char *name,
                      char question[QUESTION_MAX], char answer[ANSWER_MAX])
{
    const char *words[WORDS_MAX];
    size_t n = p->n;
    memcpy(words, p->words, n * sizeof words[0]);
    const size_t i = skv_doc_below(w, n - 1); /* never the last: something follows it */
    const char *other = skv_doc_noun(w);
    switch ((edit_kind)skv_doc_below(w, EDIT_COUNT)) {
    case EDIT_REVERSE:
        snprintf(question, QUESTION_MAX, "Repeat passage %s backwards, word by word.", name);
        for (size_t k = 0; k < n; k++) words[k] = p->words[n - 1 - k];
        break;
    case EDIT_REPLACE:
        snprintf(question, QUESTION_MAX, "Repeat passage %s with %s instead of %s.", name, other,
                 words[i]);
        words[i] = other;
        break;
    case EDIT_WITHOUT:
        snprintf(question, QUESTION_MAX, "Repeat passage %s without the word %s.", name, words[i]);
        n--;
        memmove(words + i, words + i + 1, (n - i) * sizeof words[0]);
        break;
    case EDIT_FIRST:
        snprintf(question, QUESTION_MAX, "What is the first word of passage %s?", name);
        n = 1;
        break;
    case EDIT_LAST:
        snprintf(question, QUESTION_MAX, "What is the last word of passage %s?", name);
        words[0] = words[n - 1];
        n = 1;
        break;
    case EDIT_AFTER:
    case EDIT_COUNT:
        snprintf(question, QUESTION_MAX, "Which word follows %s in passage %s?", words[i], name);
        words[0] = words[i + 1];
        n = 1;
        break;
    }
    join(words, n, answer);
}

void skv_doc_write_edit(skv_doc_writer *w)
{
    write_document(w, make_edit);
}
