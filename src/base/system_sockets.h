/*
 * The part of the door to the operating system (system.h) that is for sockets, and for waking a
 * thread that polls them.
 */
#ifndef SKV_BASE_SYSTEM_SOCKETS_H
#define SKV_BASE_SYSTEM_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* ---- waking a thread that polls ---- */

typedef struct skv_wake {
    int fd;     /* owned: to poll for reading; -1: not open */
    int ringer; /* owned: written to; may be fd */
} skv_wake;

/** Descriptors that one takes. */
size_t skv_wake_files(void);
/** False: no descriptor. */
bool skv_wake_open(skv_wake *wake);
/** From any thread; never waits. */
void skv_wake_ring(const skv_wake *wake);
/** Takes back all that was rung. */
void skv_wake_clear(const skv_wake *wake);
/** Does nothing if it is not open. */
void skv_wake_close(skv_wake *wake);

/* ---- sockets: closed on exec, and no signal where the other side has gone ---- */

/** A socket as of socket(); waits: reads and writes do. */
int skv_socket_open(int family, int type, bool waits);
/** Accepts the next connection of a listening socket, with blocking reads and writes; -1 as
 * accept(). */
int skv_socket_accept(int fd, struct sockaddr_storage *address);
/** Writes as much as possible without blocking; returns as send() and sendmsg() do. */
ssize_t skv_socket_send(int fd, const void *data, size_t n);
ssize_t skv_socket_send_parts(int fd, struct iovec *parts, size_t n_parts);
/** Returns the bytes that the system holds for the peer; false: unknown. */
bool skv_socket_queued(int fd, size_t *n_bytes);
/** Whether the peer has closed its end. Waits for that, or for `wake` (may be NULL), for at most
 * wait_ms. Except on Linux, a close after unread bytes is not noticed. */
bool skv_socket_has_left(int fd, const skv_wake *wake, int wait_ms);

#endif
