/*
 * Prints which CUDA driver a program finds here, in two lines: its kind (real, simulated or none), and the name of its
 * first device, or the reason why there is none. It loads the driver at run time, as devexchange does, and so finds the
 * same one.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int driver_init(unsigned flags);
typedef int driver_count(int *count);
typedef int driver_name(char *name, int bytes, int device);

static int say(const char *what, const char *name) {
    printf("%s\n%s\n", what, name);
    return 0;
}

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        return say("none", "there is no libcuda.so.1");
    }
    driver_init *init = NULL;
    driver_count *count = NULL;
    driver_name *name_of = NULL;
    *(void **)&init = dlsym(library, "cuInit");
    *(void **)&count = dlsym(library, "cuDeviceGetCount");
    *(void **)&name_of = dlsym(library, "cuDeviceGetName");
    if (init == NULL || count == NULL || name_of == NULL) {
        return say("none", "libcuda.so.1 is not a CUDA driver");
    }
    int devices = 0;
    int const failed = init(0);
    if (failed != 0 || count(&devices) != 0 || devices == 0) {
        char why[64];
        snprintf(why, sizeof why, "the driver shows no device (cuInit: %d)", failed);
        return say("none", why);
    }
    char name[128] = "?";
    /* The handle of the first device is taken to be its number, 0. */
    name_of(name, sizeof name, 0);
    return say(dlsym(library, "simcuda_version") != NULL ? "simulated" : "real", name);
}
