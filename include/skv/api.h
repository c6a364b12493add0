<<<<<<< HEAD
/** What every public header begins and ends with. */
=======
/**
 * What every public header puts around its declarations: C linkage in C++, and symbols that the
 * shared library exports although everything else in it is hidden.
 */
>>>>>>> repo
#ifndef SKV_API_H
#define SKV_API_H

#ifdef __cplusplus
<<<<<<< HEAD
#define SKV_BEGIN extern "C" {
#define SKV_END }
#else
#define SKV_BEGIN
#define SKV_END
#endif

/* The shared library exports what public headers declare and nothing else. */
#define SKV_API __attribute__((visibility("default")))

/* A status that must not be ignored. */
#define SKV_CHECKED SKV_API __attribute__((warn_unused_result))
=======
#define SKV_API_LINKAGE_BEGIN extern "C" {
#define SKV_API_LINKAGE_END }
#else
#define SKV_API_LINKAGE_BEGIN
#define SKV_API_LINKAGE_END
#endif

#define SKV_API_BEGIN _Pragma("GCC visibility push(default)") SKV_API_LINKAGE_BEGIN
#define SKV_API_END SKV_API_LINKAGE_END _Pragma("GCC visibility pop")
>>>>>>> repo

#endif
