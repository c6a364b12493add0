/*
 * The functions that system_posix.c needs from its system's file: macOS, FreeBSD, or the portable
 * one.
 */
#ifndef SKV_BASE_SYSTEM_POSIX_H
#define SKV_BASE_SYSTEM_POSIX_H

/** Has writes to a socket raise no signal where the other side has gone, ... */
void skv_system_quiet_socket(int fd);
/** ... or writes with these flags, which also do not wait. */
int skv_system_send_flags(void);

#endif
