/** The macros that every public header begins and ends with. */
#ifndef SKV_API_H
#define SKV_API_H

#ifdef __cplusplus
#define SKV_BEGIN extern "C" {
#define SKV_END }
#else
#define SKV_BEGIN
#define SKV_END
#endif

/* The shared library exports only the declarations of public headers. */
#define SKV_API __attribute__((visibility("default")))

/* A status that must not be ignored. */
#define SKV_CHECKED SKV_API __attribute__((warn_unused_result))

#endif
