/*
 * Whether the worker goes on. When there is work and no step for too long, /health tells, standard
 * error gets a line and where every thread stands, and systemd, where it has asked for signs of
 * life (WatchdogSec=), gets no more of them.
 */
#ifndef SKV_SERVER_WATCHDOG_H
#define SKV_SERVER_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

struct http_server;

typedef struct watchdog {
    int notify_fd;             /* systemd's socket; below 0: none */
    bool stalled;              /* at the last look */
    uint64_t told_ns;          /* when systemd was last told */
    uint64_t patient_until_ns; /* until then the worker has had no chance to go on */
} watchdog;

/** Once, before threads are made that stacks are wanted of. */
void watchdog_open(watchdog *dog);
void watchdog_close(watchdog *dog);
/** By one thread, several times a second; stood_still: not since long, as everything did. */
void watchdog_look(watchdog *dog, struct http_server *server, bool stood_still);
/** Whether there is work and no step for longer than --watchdog. From any thread. */
bool watchdog_stalled(struct http_server *server);

#endif
