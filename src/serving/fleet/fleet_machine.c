/* A machine of the simulation: see fleet_machine.h. */
#include "fleet_machine.h"

#include "base/mem.h"
#include "scheduler/turns.h"

enum { CHUNK_MIN = 8, PIECE_MIN = 32 }; /* as in scheduler/compose.c */

bool fleet_machine_init(fleet_machine *m, const fleet_costs *costs, const fleet_limits *limits,
                        size_t block_tokens)
{
    *m = (fleet_machine){.costs = costs, .limits = limits, .block_tokens = block_tokens};
    skv_step_clock_init(&m->clock, limits->step_ms);
    m->prompts = skv_alloc_zero(limits->max_running, sizeof *m->prompts);
    m->answers = skv_alloc_zero(limits->max_running, sizeof *m->answers);
    return m->prompts && m->answers &&
           fleet_blocks_init(&m->cache, limits->kv_tokens / block_tokens);
}

void fleet_machine_release(fleet_machine *m)
{
    skv_free(m->prompts);
    skv_free(m->answers);
    fleet_blocks_release(&m->cache);
}

static size_t needs(const fleet_request *r)
{
    return (size_t)r->n_until + (r->n_until == r->n_prompt ? r->n_output : 0);
}

bool fleet_machine_fits(const fleet_machine *m, const fleet_request *r)
{
    return needs(r) <= m->limits->kv_tokens;
}

void fleet_machine_put(fleet_machine *m, fleet_request *r)
{
    r->next = NULL;
    if (m->queue_end) {
        m->queue_end->next = r;
    } else {
        m->queue = r;
    }
    m->queue_end = r;
}

/* Cached blocks make room for requests. */
static void take_in(fleet_machine *m)
{
    while (m->queue && m->n_prompts + m->n_answers < m->limits->max_running &&
           m->kv_used + needs(m->queue) <= m->limits->kv_tokens) {
        fleet_request *r = m->queue;
        m->queue = r->next;
        if (!m->queue) m->queue_end = NULL;
        m->kv_used += needs(r);
        m->prompts[m->n_prompts++] = (fleet_piece){r, 0};
    }
    fleet_blocks_trim(&m->cache, (m->limits->kv_tokens - m->kv_used) / m->block_tokens);
}

/* ---- a step begins ---- */

static size_t left_of(const fleet_piece *p)
{
    return p->request->n_until - p->request->n_seen;
}

static fleet_piece *next_prompt(const fleet_machine *m)
{
    fleet_piece *best = NULL;
    for (size_t i = 0; i < m->n_prompts; i++) {
        fleet_piece *p = &m->prompts[i];
        if (p->n > 0) continue;
        const bool by_age = m->n_composed % SKV_TURNS_OLDEST == 0;
        if (!best || (!by_age && left_of(p) < left_of(best))) best = p;
    }
    return best;
}

static skv_step_work add_prompts(fleet_machine *m, fleet_step *step)
{
    size_t n_free = m->costs->step_tokens - m->n_answers;
    double ns = skv_step_clock_room(&m->clock, m->n_answers, 0);
    skv_step_work work = {0, 0};
    for (bool first = true; n_free > 0; first = false) {
        fleet_piece *p = next_prompt(m);
        if (!p) break;
        const size_t n_seen = p->request->n_seen, left = left_of(p);
        size_t n = skv_step_clock_fit(&m->clock, ns, n_seen);
        if (first && n < CHUNK_MIN) n = CHUNK_MIN;
        if (n > left) n = left;
        if (n > n_free) n = n_free;
        if (n == 0 || (!first && n < left && n < PIECE_MIN)) break;
        const skv_step_work part = skv_step_work_of(n, n_seen);
        p->n = n;
        n_free -= n;
        ns -= skv_step_clock_cost(&m->clock, part);
        if (ns < 0) ns = 0;
        work.n += part.n;
        work.n_before += part.n_before;
        step->n_prompt += (double)n;
        step->prompt_reads += (double)n * (double)n_seen;
        if (n == left) step->n_answer++; /* its last row runs all layers */
        if (n == left) step->n_prompt--;
    }
    return work;
}

double fleet_machine_begin(fleet_machine *m)
{
    take_in(m);
    if (m->n_prompts + m->n_answers == 0) return 0;
    m->n_composed++;
    m->step = (fleet_step){.n_answer = (double)m->n_answers, .answer_reads = m->answer_reads};
    const skv_step_work work = add_prompts(m, &m->step);
    m->step_ms = fleet_step_ms(m->costs, &m->step);
    m->busy_s += m->step_ms * 1e-3;
    m->in_step = true;
    skv_step_clock_learn(&m->clock, m->n_answers, work, (uint64_t)(m->step_ms * 1e6));
    return m->step_ms * 1e-3;
}

/* ---- a step ends ---- */

static void push_answer(fleet_machine *m, fleet_answer answer)
{
    size_t i = m->n_answers++;
    for (; i > 0 && m->answers[(i - 1) / 2].last > answer.last; i = (i - 1) / 2) {
        m->answers[i] = m->answers[(i - 1) / 2];
    }
    m->answers[i] = answer;
}

static fleet_request *pop_answer(fleet_machine *m)
{
    fleet_request *top = m->answers[0].request;
    const fleet_answer moved = m->answers[--m->n_answers];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_answers; i = child) {
        if (child + 1 < m->n_answers && m->answers[child + 1].last < m->answers[child].last) {
            child++;
        }
        if (m->answers[child].last >= moved.last) break;
        m->answers[i] = m->answers[child];
    }
    m->answers[i] = moved;
    return top;
}

static void leave(fleet_machine *m, fleet_request *r)
{
    m->kv_used -= needs(r);
    (void)fleet_blocks_add(&m->cache, r->names, r->n_blocks);
}

static void end_prompt(fleet_machine *m, fleet_request *r, const fleet_told *told)
{
    const size_t n_needed = needs(r);
    if (!told->on_first(told->user, m, r)) {
        m->kv_used -= n_needed;
        (void)fleet_blocks_add(&m->cache, r->names, r->n_blocks);
    } else if (r->n_output <= 1) {
        leave(m, r);
        told->on_end(told->user, m, r);
    } else {
        m->answer_reads += r->n_prompt;
        push_answer(m, (fleet_answer){m->n_steps + r->n_output - 1, r});
    }
}

static void end_prompts(fleet_machine *m, const fleet_told *told)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->n_prompts; i++) {
        fleet_piece p = m->prompts[i];
        if (p.n > 0) {
            p.request->n_seen += (uint32_t)p.n;
            told->on_read(told->user, m, p.request, p.n);
        }
        p.n = 0;
        if (left_of(&p) == 0) {
            end_prompt(m, p.request, told);
        } else {
            m->prompts[kept++] = p;
        }
    }
    m->n_prompts = kept;
}

void fleet_machine_end(fleet_machine *m, const fleet_told *told)
{
    m->in_step = false;
    m->n_steps++;
    m->answer_reads += (double)m->n_answers;
    while (m->n_answers > 0 && m->answers[0].last <= m->n_steps) {
        fleet_request *r = pop_answer(m);
        m->answer_reads -= (double)r->n_prompt + (double)r->n_output - 1;
        leave(m, r);
        told->on_end(told->user, m, r);
    }
    end_prompts(m, told);
}
