/* Marks of data in texts: see jinja_mark.h. */
#include "text/jinja/jinja_mark.h"

#include "base/marks.h"

static const size_t from_the_start[] = {0};

const skv_jmarks skv_j_data = {.at = from_the_start, .n = 1};

/* Where s begins in the text that its marks are of. */
static size_t start_of(const skv_jstr *s)
{
    return s->marks->base ? (size_t)(s->data - s->marks->base) : 0;
}

/* Whether byte `at` of the text is data. */
static bool is_data(const skv_jstr *s, size_t at)
{
    if (!s->marks || s->marks == &skv_j_data) return s->marks;
    return skv_marks_before(s->marks->at, s->marks->n, start_of(s) + at) % 2 == 1;
}

void skv_jmarker_init(skv_jmarker *m, skv_budget *budget)
{
    *m = (skv_jmarker){.data = false};
    skv_buf_init_within(&m->at, SIZE_MAX / 4, budget);
}

void skv_jmarker_release(skv_jmarker *m)
{
    skv_buf_release(&m->at);
}

/* From byte `at` on, which is not before the last mark, the text is data or not. */
static void set_data(skv_jmarker *m, size_t at, bool data)
{
    if (m->data == data) return;
    m->data = data;
    size_t n = m->at.size / sizeof at;
    /* Nothing followed the last mark, so it is removed. */
    if (n > 0 && ((const size_t *)(const void *)m->at.data)[n - 1] == at)
        m->at.size -= sizeof at;
    else
        skv_buf_append(&m->at, &at, sizeof at);
}

void skv_jmarker_copy(skv_jmarker *m, size_t at, const skv_jstr *s, size_t from, size_t to)
{
    const bool before = m->data;
    if (from == to) return;
    set_data(m, at, is_data(s, from));
    if (s->marks && s->marks != &skv_j_data) {
        const size_t start = start_of(s), *marks = s->marks->at, n = s->marks->n;
        for (size_t i = skv_marks_before(marks, n, start + from); i < n; i++) {
            if (marks[i] >= start + to) break;
            set_data(m, at + marks[i] - start - from, i % 2 == 0);
        }
    }
    set_data(m, at + to - from, before);
}

size_t skv_jmarker_count(const skv_jmarker *m, size_t size)
{
    size_t n = m->at.size / sizeof size;
    return n > 0 && ((const size_t *)(const void *)m->at.data)[n - 1] == size ? n - 1 : n;
}

void skv_jout_init(skv_jout *out, skv_budget *budget)
{
    skv_buf_init_within(&out->text, SIZE_MAX / 4, budget);
    skv_jmarker_init(&out->marks, budget);
}

void skv_jout_release(skv_jout *out)
{
    skv_buf_release(&out->text);
    skv_jmarker_release(&out->marks);
}

void skv_jout_set(skv_jout *out, bool data)
{
    set_data(&out->marks, out->text.size, data);
    out->text.failed = out->text.failed || out->marks.at.failed;
}

void skv_jout_follow(skv_jout *out, const skv_jstr *s, size_t at)
{
    skv_jout_set(out, is_data(s, at));
}

void skv_jout_part(skv_jout *out, const skv_jstr *s, size_t from, size_t to)
{
    size_t at = out->text.size;
    if (skv_buf_append(&out->text, s->data + from, to - from))
        skv_jmarker_copy(&out->marks, at, s, from, to);
    out->text.failed = out->text.failed || out->marks.at.failed;
}

void skv_jout_put(skv_jout *out, const skv_jstr *s)
{
    skv_jout_part(out, s, 0, s->size);
}
