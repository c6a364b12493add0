/* Several machines, the network between them, and the clock: see fleet.h. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "fleet.h"

/* Machines of a conversation's own may have this much more to do than the others on average. */
static const double AFFINITY_MOST = 1.25;
enum { AFFINITY_BLOCKS = 2, PAGE_TOKENS = 64, MACHINES_MAX = 1 << 16, NAMES_MAX = 1 << 16 };

typedef enum event_kind { STEP_ENDS, BLOCKS_ARRIVED } event_kind;

typedef struct event {
    double at_s;
    uint64_t order; /* events at one time happen in the order in which they were planned */
    event_kind kind;
    size_t i_machine;
    fleet_request *request; /* of BLOCKS_ARRIVED */
} event;

/* One transfer after the other, as fast as its bytes go. */
typedef struct wire {
    double gbs, free_s, busy_s;
} wire;

typedef struct fleet {
    const fleet_options *o;
    fleet_machine *machines; /* owned, [n_machines]: those that answer, then readers */
    wire *links;             /* owned, [n_machines] */
    wire store_link;
    fleet_blocks store;
    event *events; /* owned, a heap */
    size_t n_events, events_room;
    uint64_t n_planned;
    double now_s;
    size_t n_answerers, block_tokens;
    load_samples ttft, tpot, e2el;
    double n_prompt_tokens, n_found_tokens;
    size_t n_bad, n_expected;
    bool no_memory;
    fleet_result *result;
} fleet;

static const char *const design_names[FLEET_DESIGNS] = {"replicas", "store", "readers"};

const char *fleet_design_name(fleet_design design)
{
    return design_names[design];
}

fleet_options fleet_options_default(void)
{
    return (fleet_options){.limits = {.max_running = 64, .kv_tokens = 1 << 15, .step_ms = 50},
                           .n_machines = 1,
                           .link_gbs = 1.25,
                           .store_gbs = 1.25,
                           .latency_ms = 0.5,
                           .store_gb = 64,
                           .read_above = 256,
                           .seconds = HUGE_VAL,
                           .length_scale = 1,
                           .goals = {-1, -1, -1},
                           .bad_share_most = 1};
}

/* ---- events ---- */

static bool before(const event *a, const event *b)
{
    return a->at_s != b->at_s ? a->at_s < b->at_s : a->order < b->order;
}

static void plan(fleet *f, double at_s, event_kind kind, size_t i_machine, fleet_request *request)
{
    if (f->n_events == f->events_room) {
        const size_t room = f->events_room ? 2 * f->events_room : 1024;
        event *events = skv_realloc(f->events, room, sizeof *events);
        if (!events) {
            f->no_memory = true;
            return;
        }
        f->events = events;
        f->events_room = room;
    }
    const event e = {at_s, f->n_planned++, kind, i_machine, request};
    size_t i = f->n_events++;
    for (; i > 0 && before(&e, &f->events[(i - 1) / 2]); i = (i - 1) / 2) {
        f->events[i] = f->events[(i - 1) / 2];
    }
    f->events[i] = e;
}

static event next_event(fleet *f)
{
    const event top = f->events[0], moved = f->events[--f->n_events];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < f->n_events; i = child) {
        if (child + 1 < f->n_events && before(&f->events[child + 1], &f->events[child])) child++;
        if (!before(&f->events[child], &moved)) break;
        f->events[i] = f->events[child];
    }
    f->events[i] = moved;
    return top;
}

/* ---- the network ---- */

/* When the bytes are through. */
static double transfer(wire *l, double from_s, double bytes)
{
    const double takes = bytes / (l->gbs * 1e9);
    l->free_s = fmax(l->free_s, from_s) + takes;
    l->busy_s += takes;
    return l->free_s;
}

/* Blocks between a machine and the store. */
static double move_blocks(fleet *f, size_t i_machine, double tokens)
{
    const double bytes = tokens * f->o->costs.kv_bytes_per_token;
    const double one = transfer(&f->links[i_machine], f->now_s, bytes);
    const double other = transfer(&f->store_link, f->now_s, bytes);
    return fmax(one, other) + f->o->latency_ms * 1e-3;
}

/* ---- where a request goes ---- */

static size_t least_busy(const fleet *f, size_t first, size_t n, uint64_t turn)
{
    if (n < 2) return first;
    size_t best = first + (size_t)(turn % n);
    for (size_t k = 1; k < n; k++) {
        const size_t i = first + (size_t)((turn + k) % n);
        if (f->machines[i].n_requests < f->machines[best].n_requests) best = i;
    }
    return best;
}

/* Rendezvous hashing of how a prompt begins. */
static size_t by_affinity(const fleet *f, const fleet_request *r, uint64_t turn)
{
    const size_t n = f->n_answerers;
    if (r->n_blocks == 0) return least_busy(f, 0, n, turn);
    const uint64_t name =
        r->names[r->n_blocks < AFFINITY_BLOCKS ? r->n_blocks - 1 : AFFINITY_BLOCKS - 1];
    double sum = 0;
    size_t best = 0;
    uint64_t best_hash = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t hash = skv_mix64(name + i);
        sum += (double)f->machines[i].n_requests;
        if (i == 0 || hash > best_hash) best_hash = hash, best = i;
    }
    const double most = AFFINITY_MOST * (sum + 1) / (double)n + 1;
    return (double)f->machines[best].n_requests < most ? best : least_busy(f, 0, n, turn);
}

static void wake(fleet *f, size_t i)
{
    if (f->machines[i].in_step) return;
    const double takes = fleet_machine_begin(&f->machines[i]);
    if (takes > 0) plan(f, f->now_s + takes, STEP_ENDS, i, NULL);
}

static void enter(fleet *f, size_t i, fleet_request *r)
{
    fleet_machine_put(&f->machines[i], r);
    wake(f, i);
}

static uint32_t tokens_of(const fleet *f, const fleet_request *r, size_t n_blocks)
{
    const size_t n = n_blocks * f->block_tokens;
    return (uint32_t)(n < r->n_prompt ? n : r->n_prompt - 1);
}

/* The reader leaves the last tokens of the prompt, which the other machine computes. */
static uint32_t reader_end(const fleet_request *r)
{
    return (r->n_prompt - 1) / PAGE_TOKENS * PAGE_TOKENS;
}

static void arrive(fleet *f, fleet_request *r, uint64_t turn)
{
    const fleet_options *o = f->o;
    r->i_machine = o->design == FLEET_REPLICAS ? by_affinity(f, r, turn)
                                               : least_busy(f, 0, f->n_answerers, turn);
    fleet_machine *m = &f->machines[r->i_machine];
    m->n_requests++;
    const size_t own = fleet_blocks_find(&m->cache, r->names, r->n_blocks);
    const size_t stored =
        o->design == FLEET_REPLICAS ? 0 : fleet_blocks_find(&f->store, r->names, r->n_blocks);
    const uint32_t n_own = tokens_of(f, r, own), n_stored = tokens_of(f, r, stored);
    r->n_found = n_stored > n_own ? n_stored : n_own;
    r->n_seen = r->n_found;
    r->n_until = r->n_prompt;
    f->n_found_tokens += r->n_found;
    f->n_prompt_tokens += r->n_prompt;
    if (o->design == FLEET_READERS && r->n_prompt - r->n_found > o->read_above &&
        reader_end(r) > r->n_found) {
        r->i_reader = least_busy(f, f->n_answerers, o->n_readers, turn);
        f->machines[r->i_reader].n_requests++;
        r->n_until = reader_end(r);
        double ready = f->now_s;
        if (r->n_found > 0) ready = move_blocks(f, r->i_reader, r->n_found);
        plan(f, ready, BLOCKS_ARRIVED, r->i_reader, r);
    } else if (n_stored > n_own) {
        plan(f, move_blocks(f, r->i_machine, n_stored - n_own), BLOCKS_ARRIVED, r->i_machine, r);
    } else {
        enter(f, r->i_machine, r);
    }
}

/* ---- the news of steps ---- */

static bool is_reader(const fleet *f, const fleet_machine *m)
{
    return (size_t)(m - f->machines) >= f->n_answerers;
}

/* A reader sends blocks as they come. */
static void on_read(void *user, fleet_machine *m, const fleet_request *r, size_t n)
{
    fleet *f = user;
    if (!is_reader(f, m)) return;
    (void)move_blocks(f, (size_t)(m - f->machines), (double)n);
    (void)transfer(&f->links[r->i_machine], f->now_s, (double)n * f->o->costs.kv_bytes_per_token);
}

static bool on_first(void *user, fleet_machine *m, fleet_request *r)
{
    fleet *f = user;
    if (is_reader(f, m)) {
        m->n_requests--;
        const wire *l = &f->links[r->i_machine];
        const double ready = fmax(f->store_link.free_s, fmax(l->free_s, f->now_s));
        r->n_until = r->n_prompt;
        plan(f, ready + 2 * f->o->latency_ms * 1e-3, BLOCKS_ARRIVED, r->i_machine, r);
        return false;
    }
    r->first_s = f->now_s;
    if (f->o->design != FLEET_REPLICAS && r->i_reader == SIZE_MAX) {
        (void)move_blocks(f, r->i_machine, (double)(r->n_prompt - r->n_found));
    }
    if (f->o->design != FLEET_REPLICAS) {
        f->no_memory = f->no_memory || !fleet_blocks_add(&f->store, r->names, r->n_blocks);
    }
    return true;
}

static void count(fleet *f, const fleet_request *r)
{
    const load_goals *g = &f->o->goals;
    const double ttft = (r->first_s - r->at_s) * 1e3, e2el = (f->now_s - r->at_s) * 1e3;
    const double tpot =
        r->n_output > 1 ? (f->now_s - r->first_s) * 1e3 / ((double)r->n_output - 1) : 0;
    const bool good = (g->ttft_ms < 0 || ttft <= g->ttft_ms) &&
                      (g->tpot_ms < 0 || tpot <= g->tpot_ms) &&
                      (g->e2el_ms < 0 || e2el <= g->e2el_ms);
    f->result->n_good += good;
    f->n_bad += !good;
    bool kept = load_samples_add(&f->ttft, ttft) && load_samples_add(&f->e2el, e2el);
    if (r->n_output > 1) kept = load_samples_add(&f->tpot, tpot) && kept;
    f->no_memory = f->no_memory || !kept;
}

static void free_request(fleet_request *r)
{
    skv_free(r->names);
    skv_free(r);
}

static void on_end(void *user, fleet_machine *m, fleet_request *r)
{
    m->n_requests--;
    count(user, r);
    free_request(r);
}

/* ---- the run ---- */

static uint32_t scaled(uint32_t n, double scale)
{
    const double value = round(n * scale);
    return value < 1 ? 1 : value > 1e9 ? 1000000000 : (uint32_t)value;
}

static fleet_request *make_request(const fleet *f, const fleet_arrival *a)
{
    const load_trace_row *row = &f->o->trace->rows[a->row];
    fleet_request *r = skv_alloc_zero(1, sizeof *r);
    if (!r) return NULL;
    r->at_s = a->at_s;
    r->i_reader = SIZE_MAX;
    r->n_prompt = scaled(row->n_prompt, f->o->length_scale);
    r->n_output = scaled(row->n_output, f->o->length_scale);
    r->n_blocks = row->n_blocks < NAMES_MAX ? row->n_blocks : NAMES_MAX;
    r->names = skv_alloc((size_t)r->n_blocks + 1, sizeof *r->names);
    if (!r->names) {
        skv_free(r);
        return NULL;
    }
    for (size_t i = 0; i < r->n_blocks; i++) {
        const uint64_t id = f->o->trace->blocks[row->first_block + i];
        r->names[i] = skv_mix64(skv_mix64(id + 1) + a->copy);
    }
    return r;
}

static void happen(fleet *f)
{
    const fleet_told told = {f, on_read, on_first, on_end};
    const event e = next_event(f);
    f->now_s = e.at_s;
    if (e.kind == STEP_ENDS) {
        f->result->n_steps++;
        fleet_machine_end(&f->machines[e.i_machine], &told);
        wake(f, e.i_machine);
    } else {
        enter(f, e.i_machine, e.request);
    }
}

static bool too_bad(fleet *f)
{
    const double bad = (double)(f->n_bad + f->result->n_refused);
    f->result->stopped = bad > f->o->bad_share_most * (double)f->n_expected;
    return f->result->stopped;
}

/* A request that still waits when a run is stopped has missed its goals; its memory goes. */
static void drop_all(fleet *f)
{
    for (size_t i = 0; i < f->n_events; i++) {
        if (f->events[i].request) free_request(f->events[i].request);
    }
    for (size_t i = 0; f->machines && i < f->o->n_machines; i++) {
        fleet_machine *m = &f->machines[i];
        for (fleet_request *r = m->queue, *next; r; r = next) {
            next = r->next;
            free_request(r);
        }
        for (size_t k = 0; k < m->n_prompts; k++) free_request(m->prompts[k].request);
        for (size_t k = 0; k < m->n_answers; k++) free_request(m->answers[k].request);
        fleet_machine_release(m);
    }
    fleet_blocks_release(&f->store);
    skv_free(f->machines);
    skv_free(f->links);
    skv_free(f->events);
    load_samples_release(&f->ttft);
    load_samples_release(&f->tpot);
    load_samples_release(&f->e2el);
}

static void run_all(fleet *f, const fleet_arrival *arrivals, size_t n)
{
    f->n_expected = n;
    for (size_t i = 0; i < n && !f->no_memory && !too_bad(f); i++) {
        while (f->n_events > 0 && f->events[0].at_s <= arrivals[i].at_s) happen(f);
        f->now_s = arrivals[i].at_s;
        fleet_request *r = make_request(f, &arrivals[i]);
        if (!r) {
            f->no_memory = true;
            return;
        }
        f->result->n_requests++;
        r->n_until = r->n_prompt;
        if (!fleet_machine_fits(&f->machines[0], r)) {
            f->result->n_refused++;
            free_request(r);
            continue;
        }
        arrive(f, r, skv_mix64(i));
    }
    while (f->n_events > 0 && !f->no_memory && !too_bad(f)) happen(f);
}

static bool make_fleet(fleet *f)
{
    const fleet_options *o = f->o;
    const size_t n = o->n_machines;
    f->machines = skv_alloc_zero(n, sizeof *f->machines);
    f->links = skv_alloc_zero(n, sizeof *f->links);
    if (!f->machines || !f->links) return false;
    for (size_t i = 0; i < n; i++) {
        f->links[i].gbs = o->link_gbs;
        if (!fleet_machine_init(&f->machines[i], &o->costs, &o->limits, f->block_tokens)) {
            return false;
        }
    }
    f->store_link.gbs = o->store_gbs;
    const double block_bytes = o->costs.kv_bytes_per_token * (double)f->block_tokens;
    const double most = o->store_gb * 1e9 / fmax(1, block_bytes);
    return fleet_blocks_init(&f->store, most < 1e9 ? (size_t)most : 1000000000);
}

static void summarise(fleet *f)
{
    fleet_result *r = f->result;
    const double seconds = fmax(f->now_s, 1e-9);
    load_samples_summary(&f->ttft, &r->ttft);
    load_samples_summary(&f->tpot, &r->tpot);
    load_samples_summary(&f->e2el, &r->e2el);
    r->found_share = f->n_prompt_tokens > 0 ? f->n_found_tokens / f->n_prompt_tokens : 0;
    for (size_t i = 0; i < f->o->n_machines; i++) {
        const bool reads = i >= f->n_answerers;
        const size_t n = reads ? f->o->n_readers : f->n_answerers;
        *(reads ? &r->reader_busy : &r->answer_busy) += f->machines[i].busy_s / seconds / (double)n;
        r->most_link = fmax(r->most_link, f->links[i].busy_s / seconds);
    }
    r->store_link = f->store_link.busy_s / seconds;
}

static const char *check(const fleet_options *o)
{
    if (o->n_machines < 1 || o->n_machines > MACHINES_MAX) return "machines: 1 to 65536";
    if (o->design == FLEET_READERS && (o->n_readers < 1 || o->n_readers >= o->n_machines)) {
        return "readers: at least one, and fewer than machines";
    }
    if (o->design != FLEET_READERS && o->n_readers > 0) return "readers: only of that design";
    if (!(o->link_gbs > 0) || !(o->store_gbs > 0)) return "a network without speed";
    if (o->limits.max_running < 1 || o->limits.max_running > o->costs.step_tokens) {
        return "answers that run together: 1 to the tokens of a step";
    }
    return NULL;
}

bool fleet_run(const fleet_options *o, fleet_result *out, char *error)
{
    *out = (fleet_result){0};
    fleet f = {.o = o, .result = out, .n_answerers = o->n_machines - o->n_readers};
    f.block_tokens = scaled(TRACE_BLOCK_TOKENS, o->length_scale);
    size_t n = 0;
    const char *why = check(o);
    fleet_arrival *arrivals =
        why ? NULL : fleet_arrivals(o->trace, o->rate, o->seconds, o->seed, &n);
    if (!why && !arrivals) why = "no memory for the arrivals";
    if (!why && !make_fleet(&f)) why = "no memory for the machines";
    if (!why) {
        out->rate = n > 1 ? (double)(n - 1) / fmax(1e-3, arrivals[n - 1].at_s) : 0;
        run_all(&f, arrivals, n);
        if (f.no_memory) why = "no memory";
    }
    if (!why) summarise(&f);
    drop_all(&f);
    free(arrivals);
    if (why) (void)snprintf(error, LOAD_ERROR_MAX, "simulate: %s", why);
    return !why;
}
