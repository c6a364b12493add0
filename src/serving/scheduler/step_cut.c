/* Steps of the engine that end early, because their reader has left, or another job has come. */
#include "scheduler/worker.h"

bool skv_worker_begin_step(skv_scheduler *s, const skv_job *job)
{
    pthread_mutex_lock(&s->lock);
    s->steps = !s->stopping;
    s->stepping = s->steps ? job : NULL;
    pthread_mutex_unlock(&s->lock);
    return s->steps;
}

bool skv_worker_begin_idle_step(skv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->steps = !s->inbox && !s->nudged && !s->stopping && !s->draining;
    s->idle.stepping = s->steps;
    pthread_mutex_unlock(&s->lock);
    return s->steps;
}

void skv_worker_cut_step(skv_scheduler *s)
{
    if (!s->steps) return;
    s->cuts = true;
    skv_cancel(s->engine);
}

void skv_worker_end_step(skv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->cuts) skv_uncancel(s->engine);
    s->steps = s->cuts = s->idle.stepping = false;
    s->stepping = NULL;
    pthread_mutex_unlock(&s->lock);
}
