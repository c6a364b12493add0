/* Sequences of jobs, and room for their pages. */
#include "ranks/ranks_tell.h"
#include "scheduler/worker.h"

const skv_kv_layout *skv_worker_layout(const skv_scheduler *s, const skv_job *job)
{
    bool teacher = job->params.prefill == SKV_PREFILL_TEACHER && s->engine->has_teacher;
    return teacher ? &s->engine->teacher_plan.layout : &s->engine->plan.layout;
}

bool skv_worker_make_room(skv_scheduler *s, size_t n_pages)
{
    size_t n_free = skv_kv_store_free_pages(s->engine->store);
    if (n_free >= n_pages) return true;
    if (!s->prefix) return false;
    skv_worker_touch_pinned(s);
    skv_tell_forget(s->engine, n_pages - n_free);
    return skv_prefix_index_evict(s->prefix, n_pages - n_free) >= n_pages - n_free;
}

skv_status skv_worker_create_sequence(skv_scheduler *s, const skv_job_params *p, skv_sequence **out,
                                      skv_error *err)
{
    /* All are made for one length: with longrope keys depend on it, and pages are shared. */
    SKV_TRY(skv_sequence_create_as(s->engine, p->prefill, s->context, out, err));
    const skv_status status = skv_sequence_set_adapters(*out, p->adapters, p->n_adapters, err);
    if (status != SKV_OK) skv_sequence_free(*out);
    return status;
}
