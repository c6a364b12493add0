/* A program outside the tree that uses the installed library: built and run by tests/install/run.
 */
#include <stdio.h>
#include <string.h>

#include <skv/error.h>
#include <skv/version.h>

int main(void)
{
    printf("skv %d.%d.%d: %s\n", SKV_VERSION_MAJOR, SKV_VERSION_MINOR, SKV_VERSION_PATCH,
           skv_status_name(SKV_FORMAT));
    return strcmp(skv_status_name(SKV_OK), "ok") != 0;
}
