/* The list of operations of the guarded back end, which runs at a wait: see guarded_backend.h. */
#include <stdlib.h>
#include <string.h>

#include "base/float16.h"
#include "guarded_state.h"

enum { RECORDINGS_OF_A_SHAPE = 4 };

/* ---- numbers of areas ---- */

float *guarded_row(const guarded *g, skv_rows inner, size_t i)
{
    return g->cpu->map(g->cpu, skv_rows_from(inner, i, 0), 1, 1, SKV_MAP_BOTH).at;
}

static float *elements(const guarded *g, const skv_area *area, size_t at)
{
    return guarded_row(g, (skv_rows){.area = area->inner, .at = at}, 0);
}

void guarded_load(const guarded *g, const skv_area *area, size_t at, float *out, size_t n)
{
    if (!area->bits) {
        memcpy(out, elements(g, area, at), n * sizeof *out);
        return;
    }
    for (size_t i = 0; i < n; i++) out[i] = skv_float_of_bf16(area->bits[at + i]);
}

/* What an operation names of areas of bfloat16 is unpacked before it runs, and packed behind it.
 * Between operations there is nothing: rows that it uses and does not name are found. */
static void unpack(const guarded *g, const operand *o)
{
    for (size_t i = 0; o->area->bits && i < o->n_rows; i++) {
        const size_t at = o->at + i * o->ld;
        guarded_load(g, o->area, at, elements(g, o->area, at), o->n);
    }
}

static void pack(const guarded *g, const operand *o)
{
    for (size_t i = 0; o->area->bits && i < o->n_rows; i++) {
        const size_t at = o->at + i * o->ld;
        const float *row = elements(g, o->area, at);
        for (size_t c = 0; c < o->n; c++) o->area->bits[at + c] = skv_bf16_of_float(row[c]);
    }
}

static void blank(const guarded *g, const operand *o)
{
    for (size_t i = 0; o->area->bits && i < o->n_rows; i++) {
        memset(elements(g, o->area, o->at + i * o->ld), NONSENSE, o->n * sizeof(float));
    }
}

/* ---- steps that repeat ---- */

bool guarded_backend_compares(void)
{
#ifdef GUARDED_COMPARES
    return true;
#else
    return false;
#endif
}

void guarded_tape(guarded *g, const skv_backend_step *step)
{
#ifdef GUARDED_COMPARES
    free(g->taping.tape);
    g->n_tape_room = 4096;
    g->taping = (recording){.step = step,
                            .slots = step->spans[0].table ? step->spans[0].table->slots : NULL,
                            .n_rows = step->n_rows,
                            .n_spans = step->n_spans,
                            .n_kept = step->sets[SKV_SET_KEPT].n_rows,
                            .n_wanted = step->sets[SKV_SET_WANTED].n_rows,
                            .n_items = step->sets[SKV_SET_ALL].n_items,
                            .tape = guarded_take(g->n_tape_room)};
#else
    (void)g;
    (void)step;
#endif
}

static void put_on_tape(guarded *g, const void *from, size_t n_bytes)
{
    recording *t = &g->taping;
    if (t->n_bytes + n_bytes > g->n_tape_room) {
        g->n_tape_room = 2 * (t->n_bytes + n_bytes);
        unsigned char *larger = guarded_take(g->n_tape_room);
        memcpy(larger, t->tape, t->n_bytes);
        free(t->tape);
        t->tape = larger;
    }
    memcpy(t->tape + t->n_bytes, from, n_bytes);
    t->n_bytes += n_bytes;
}

/* Where lists of the host come along, the addresses of copies differ: such an operation is compared
 * by name. */
static void tape_record(guarded *g, const record *r)
{
    put_on_tape(g, &r->replay, sizeof r->replay);
    if (!r->lists) put_on_tape(g, r->args, r->n_bytes);
}

static bool same_shape(const recording *a, const recording *b)
{
    return a->tape && a->step == b->step && a->slots == b->slots && a->n_rows == b->n_rows &&
           a->n_spans == b->n_spans && a->n_kept == b->n_kept && a->n_wanted == b->n_wanted &&
           a->n_items == b->n_items;
}

/* A step was waited for. Steps of one shape may have some lists of operations, as logits and hidden
 * rows are wanted, but not one each time: then something in them depends on where tokens stand. */
static void end_tape(guarded *g)
{
    recording *t = &g->taping;
    size_t n_others = 0;
    if (!t->tape) return;
    for (size_t i = 0; i < MAX_RECORDINGS; i++) {
        const recording *r = &g->recordings[i];
        if (!same_shape(r, t)) continue;
        n_others++;
        if (r->n_bytes == t->n_bytes && memcmp(r->tape, t->tape, t->n_bytes) == 0) {
            free(t->tape);
            t->tape = NULL;
            return;
        }
    }
    if (n_others >= RECORDINGS_OF_A_SHAPE) guarded_die("decoding steps that do not repeat");
    recording *oldest = &g->recordings[g->i_recording++ % MAX_RECORDINGS];
    free(oldest->tape);
    *oldest = *t;
    t->tape = NULL;
}

/* ---- the list ---- */

void *guarded_copy(kept **list, const void *from, size_t n_bytes)
{
    kept *k = guarded_take(sizeof *k + n_bytes);
    k->next = *list;
    k->n_bytes = n_bytes;
    if (n_bytes > 0) memcpy(k->bytes, from, n_bytes);
    *list = k;
    return k->bytes;
}

void guarded_spoil_copies(const kept *list)
{
    for (; list; list = list->next) {
        memset((void *)(uintptr_t)list->bytes, NONSENSE, list->n_bytes);
    }
}

void guarded_free_copies(kept *list)
{
    while (list) {
        kept *next = list->next;
        free(list);
        list = next;
    }
}

void *guarded_keep(guarded *g, const void *from, size_t n_bytes)
{
    return from ? guarded_copy(&g->next.lists, from, n_bytes) : NULL;
}

void guarded_later(guarded *g, guarded_replay *replay, const void *args, size_t n_bytes)
{
    if (g->n_records == g->n_room) {
        g->n_room = 2 * g->n_room + 64;
        record *larger = guarded_take(g->n_room * sizeof *larger);
        if (g->n_records > 0) memcpy(larger, g->records, g->n_records * sizeof *larger);
        free(g->records);
        g->records = larger;
    }
    record *r = &g->records[g->n_records++];
    *r = g->next;
    r->replay = replay;
    r->args = memcpy(guarded_take(n_bytes), args, n_bytes);
    r->n_bytes = n_bytes;
    g->next = (record){.replay = NULL};
    if (g->taping.tape) tape_record(g, r);
}

static void run_record(guarded *g, record *r)
{
    for (size_t i = 0; i < r->n_operands; i++) unpack(g, &r->operands[i]);
    r->replay(g, r->args);
    for (size_t i = 0; i < r->n_operands; i++) pack(g, &r->operands[i]);
    for (size_t i = 0; i < r->n_operands; i++) blank(g, &r->operands[i]);
    free(r->args);
    guarded_spoil_copies(r->lists);
    guarded_free_copies(r->lists);
}

void guarded_run(guarded *g)
{
    end_tape(g);
    for (size_t i = 0; i < g->n_records; i++) run_record(g, &g->records[i]);
    g->n_records = 0;
}

void guarded_wait(guarded *g)
{
    guarded_run(g);
    g->n_waits += g->is_busy;
    g->is_busy = false;
}

void guarded_list_free(guarded *g)
{
    guarded_run(g);
    free(g->records);
    for (size_t i = 0; i < MAX_RECORDINGS; i++) free(g->recordings[i].tape);
}
