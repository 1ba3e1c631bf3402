/* Linked into the static program by packaging/static-twin-cc.
 *
 * The name services that the system configures in /etc/nsswitch.conf are shared libraries. A static program can use them
 * only if the system has exactly the C library from which the program was linked; with another one it crashes. So the
 * static program uses the services that it contains, whatever the system configures.
 */
#include <nss.h>
#include <stdlib.h>

static const char *const services[][2] = {
    {"hosts", "files dns"}, {"networks", "files dns"}, {"services", "files"}, {"protocols", "files"},
    {"passwd", "files"},    {"group", "files"},        {"initgroups", "files"},
};

__attribute__((constructor)) static void use_own_name_services(void) {
    for (size_t at = 0; at < sizeof services / sizeof services[0]; at++) {
        if (__nss_configure_lookup(services[at][0], services[at][1]) != 0) {
            abort();
        }
    }
}
