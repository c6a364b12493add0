/* A reader that waits until something was written. */
#ifndef SKV_TESTS_BELL_H
#define SKV_TESTS_BELL_H

#include <pthread.h>
#include <stddef.h>

typedef struct bell {
    pthread_mutex_t lock;
    pthread_cond_t rung;
    size_t n;
} bell;

static inline void bell_init(bell *b)
{
    *b = (bell){.n = 0};
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->rung, NULL);
}

static inline void ring(void *user)
{
    bell *b = user;
    pthread_mutex_lock(&b->lock);
    b->n++;
    pthread_cond_signal(&b->rung);
    pthread_mutex_unlock(&b->lock);
}

static inline void bell_wait(bell *b)
{
    pthread_mutex_lock(&b->lock);
    while (b->n == 0) pthread_cond_wait(&b->rung, &b->lock);
    b->n = 0;
    pthread_mutex_unlock(&b->lock);
}

#endif
