/* Tasks: see task_source.h. */
#include "eval/task_source.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/size.h"
#include "data/doc_maker.h"
#include "language/vocab_impl.h"

enum { TEXT_FILE_MAX = 1 << 30, WHERE_MAX = 512, COUNT_DEFAULT = 100, LENGTH_MIN = 64 };

static const size_t default_lengths[] = {128, 512, 2048};

/* ---- our own documents ---- */

const char *skv_task_source_own(size_t i)
{
    for (size_t task = 0; task < SKV_DOC_TASK_COUNT; task++) {
        if (!skv_doc_task_asks((skv_doc_task)task)) continue;
        if (i-- == 0) return skv_doc_task_name((skv_doc_task)task);
    }
    return NULL;
}

static bool is_own(const char *name)
{
    for (size_t i = 0; skv_task_source_own(i); i++) {
        if (strcmp(skv_task_source_own(i), name) == 0) return true;
    }
    return false;
}

static skv_status make_own(const skv_task_source *s, const skv_eval_maker *m, size_t i,
                           skv_eval_example *e, skv_error *err)
{
    const size_t i_length = i / s->count;
    char *line, where[WHERE_MAX];
    size_t n;
    SKV_TRY(skv_documents_json(s->documents[i_length], i % s->count, true, &line, &n, err));
    snprintf(where, sizeof where, "%s: document %zu", s->name, i % s->count);
    json_t *record;
    skv_status status = skv_json_load(line, n, n, where, &record, err);
    skv_text_free(line);
    SKV_TRY(status);
    e->length = s->lengths[i_length];
    status = skv_eval_make(m, skv_eval_format_of(record), record, where, e, err);
    json_decref(record);
    return status;
}

static skv_status open_length(skv_task_source *s, size_t length, const skv_eval_options *options,
                              const skv_eval_maker *m, skv_error *err)
{
    skv_documents_options how = skv_documents_default();
    how.seed = options->seed;
    how.tasks = s->name;
    how.tokens_min = how.tokens_max = length;
    how.held_out = true;
    how.prose = options->prose;
    SKV_TRY(skv_documents_create(&how, m->prompter->vocab->tokenizer, &s->documents[s->n_lengths],
                                 err));
    s->lengths[s->n_lengths++] = length;
    return SKV_OK;
}

static skv_status open_own(skv_task_source *s, const skv_eval_options *options,
                           const skv_eval_maker *m, skv_error *err)
{
    const bool given = options->n_lengths > 0;
    const size_t *lengths = given ? options->lengths : default_lengths;
    const size_t n =
        given ? options->n_lengths : sizeof default_lengths / sizeof default_lengths[0];
    s->documents = skv_alloc_zero(n, sizeof(skv_documents *));
    s->lengths = skv_alloc(n, sizeof *s->lengths);
    SKV_REQUIRE(s->documents && s->lengths, err, SKV_MEMORY, "%s: no memory", s->name);
    for (size_t i = 0; i < n; i++) {
        if (!given && i > 0 && lengths[i] + LENGTH_MIN > m->window) break;
        SKV_TRY(open_length(s, lengths[i], options, m, err));
    }
    s->count = options->count ? options->count : COUNT_DEFAULT;
    s->has_depths = true;
    s->format = "document";
    s->make = make_own;
    SKV_REQUIRE(skv_size_mul(s->count, s->n_lengths, &s->n), err, SKV_RANGE, "%s: too many",
                s->name);
    return SKV_OK;
}

/* ---- records ---- */

static skv_status make_record(const skv_task_source *s, const skv_eval_maker *m, size_t i,
                              skv_eval_example *e, skv_error *err)
{
    const skv_record *record = &s->records.at[i];
    char where[WHERE_MAX];
    snprintf(where, sizeof where, "%s:%zu", s->path, record->line);
    skv_eval_maker mine = *m;
    mine.subject = s->subject;
    return skv_eval_make(&mine, skv_eval_format_of(record->object), record->object, where, e, err);
}

/* Checks that all records have the format of the first. */
static skv_status check_formats(skv_task_source *s, skv_error *err)
{
    SKV_REQUIRE(s->records.n > 0, err, SKV_FORMAT, "%s: no records", s->path);
    const skv_eval_format *first = NULL;
    for (size_t i = 0; i < s->records.n; i++) {
        const skv_record *record = &s->records.at[i];
        const skv_eval_format *format = skv_eval_format_of(record->object);
        SKV_REQUIRE(format, err, SKV_FORMAT, "%s:%zu: the fields match no known format", s->path,
                    record->line);
        if (!first) first = format;
        SKV_REQUIRE(format == first, err, SKV_FORMAT,
                    "%s:%zu: the fields are those of \"%s\", before they were those of \"%s\"",
                    s->path, record->line, format->name, first->name);
    }
    s->format = first->name;
    s->has_depths = first->max_new > 0 || !first->judge;
    return SKV_OK;
}

/* "high_school_biology_test" is about high school biology. */
static skv_status name_subject(skv_task_source *s, skv_error *err)
{
    static const char *const endings[] = {"_test", "_dev", "_val"};
    size_t n = strlen(s->name), n_cut = 0;
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t n_ending = strlen(endings[i]);
        if (n > n_ending && strcmp(s->name + n - n_ending, endings[i]) == 0) n_cut = n_ending;
    }
    s->subject = skv_strndup(s->name, n_cut ? n - n_cut : 0);
    SKV_REQUIRE(s->subject, err, SKV_MEMORY, "%s: no memory", s->path);
    for (char *c = s->subject; *c; c++) {
        if (*c == '_') *c = ' ';
    }
    return SKV_OK;
}

static skv_status open_records(skv_task_source *s, const skv_eval_options *options, skv_error *err)
{
    SKV_TRY(skv_records_read(&s->records, s->path, options->count, err));
    SKV_TRY(check_formats(s, err));
    SKV_TRY(name_subject(s, err));
    s->n = s->records.n;
    s->make = make_record;
    return SKV_OK;
}

/* ---- plain texts ---- */

static skv_status make_window(const skv_task_source *s, const skv_eval_maker *m, size_t i,
                              skv_eval_example *e, skv_error *err)
{
    const size_t step = skv_eval_window_tokens(s->window, s->begin), at = i * step;
    const size_t n = skv_min_size(step, s->ids.n - at);
    const double bytes = (double)s->n_bytes * (double)n / (double)s->ids.n;
    e->format = skv_eval_format_find("text");
    return skv_eval_text_window(&s->ids, (skv_eval_window){at, n, s->begin, bytes, m->scored}, e,
                                err);
}

static skv_status open_text(skv_task_source *s, const skv_eval_options *options,
                            const skv_eval_maker *m, skv_error *err)
{
    char *data;
    SKV_TRY(skv_file_read(s->path, TEXT_FILE_MAX, &data, &s->n_bytes, err));
    const skv_eval_text text = {data, s->n_bytes};
    const bool packed = s->n_bytes >= 2 && memcmp(data, "\x1f\x8b", 2) == 0;
    skv_status status = packed ? skv_fail(err, SKV_UNSUPPORTED,
                                          "%s: compressed: unpack it first (gunzip -k)", s->path)
                               : skv_eval_text_tokens(m->prompter, text, &s->ids, &s->begin, err);
    skv_free(data);
    SKV_TRY(status);
    SKV_REQUIRE(s->ids.n > 0, err, SKV_FORMAT, "%s: empty", s->path);
    s->window = m->window;
    s->n = skv_ceil_div(s->ids.n, skv_eval_window_tokens(s->window, s->begin));
    if (options->count) s->n = skv_min_size(s->n, options->count);
    s->format = "text";
    s->make = make_window;
    return SKV_OK;
}

/* ---- any ---- */

/* The file's name without folders and ending. */
static char *short_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    return skv_strndup(name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

static skv_status fail_name(const char *name, skv_error *err)
{
    char list[256] = "";
    size_t n = 0;
    for (size_t i = 0; skv_task_source_own(i) && n < sizeof list; i++) {
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i > 0 ? ", " : "",
                              skv_task_source_own(i));
    }
    return skv_fail(err, SKV_IO,
                    "task: \"%s\" is neither a file nor a built-in task with questions: %s", name,
                    list);
}

static skv_status fill(skv_task_source *s, const char *name, const skv_eval_options *options,
                       const skv_eval_maker *m, skv_error *err)
{
    const bool own = is_own(name);
    s->path = skv_strndup(name, strlen(name));
    s->name = own ? skv_strndup(name, strlen(name)) : short_name(name);
    SKV_REQUIRE(s->path && s->name, err, SKV_MEMORY, "%s: no memory", name);
    if (own) return open_own(s, options, m, err);
    if (!skv_file_exists(name)) return fail_name(name, err);
    return skv_records_are(name) ? open_records(s, options, err) : open_text(s, options, m, err);
}

skv_status skv_task_source_open(skv_task_source *s, const char *name,
                                const skv_eval_options *options, const skv_eval_maker *m,
                                skv_error *err)
{
    *s = (skv_task_source){.begin = -1};
    skv_status status = fill(s, name, options, m, err);
    if (status != SKV_OK) skv_task_source_close(s);
    return status;
}

void skv_task_source_close(skv_task_source *s)
{
    for (size_t i = 0; i < s->n_lengths; i++) skv_documents_close(s->documents[i]);
    skv_free(s->documents);
    skv_free(s->lengths);
    skv_records_release(&s->records);
    skv_ids_release(&s->ids);
    skv_free(s->subject);
    skv_free(s->name);
    skv_free(s->path);
    *s = (skv_task_source){.begin = -1};
}
