/**
 * What every public header puts around its declarations: C linkage in C++, and symbols that the
 * shared library exports although everything else in it is hidden.
 */
#ifndef SKV_API_H
#define SKV_API_H

#ifdef __cplusplus
#define SKV_API_LINKAGE_BEGIN extern "C" {
#define SKV_API_LINKAGE_END }
#else
#define SKV_API_LINKAGE_BEGIN
#define SKV_API_LINKAGE_END
#endif

#define SKV_API_BEGIN _Pragma("GCC visibility push(default)") SKV_API_LINKAGE_BEGIN
#define SKV_API_END SKV_API_LINKAGE_END _Pragma("GCC visibility pop")

#endif
