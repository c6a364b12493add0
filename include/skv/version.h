/** The version of libskv: semantic versioning, the interface may change while MAJOR is 0. */
#ifndef SKV_VERSION_H
#define SKV_VERSION_H

#define SKV_VERSION_MAJOR 0
#define SKV_VERSION_MINOR 1
#define SKV_VERSION_PATCH 0

#endif
