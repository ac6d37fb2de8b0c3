/* A program that is linked against libcuda.so.1, as C programs are.
 *   client cost N      µs that each of N launches of empty kernels takes
 *   client run MS US   launch kernels of US µs for MS ms; prints how many
 *   client alloc MIB…  one allocation after the other; prints the results
 *   client hold MIB…   the same, and then launches until it is ended */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuCtxSynchronize(void);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static void launch(unsigned us) { cuLaunchKernel(NULL, us, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL); }

static void cost(long count) {
    for (long i = 0; i < count / 10; i++) launch(0);
    double began = now();
    for (long i = 0; i < count; i++) launch(0);
    printf("%.4f\n", (now() - began) * 1e6 / (double)count);
}

static void run(double ms, unsigned us) {
    long count = 0;
    for (double until = now() + ms / 1e3; now() < until; count++) {
        launch(us);
        if (count % 32 == 31) cuCtxSynchronize(); /* a program does not run ahead for ever */
    }
    cuCtxSynchronize();
    printf("%ld\n", count);
}

int main(int count, char **args) {
    void *context;
    unsigned long long pointer;
    int result = cuInit(0);
    if (result) return printf("cuInit %d\n", result), 1;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    if (count > 2 && !strcmp(args[1], "cost")) cost(atol(args[2]));
    if (count > 3 && !strcmp(args[1], "run")) run(atof(args[2]), (unsigned)atoi(args[3]));
    int holds = count > 2 && !strcmp(args[1], "hold");
    for (int i = 2; i < count && (holds || !strcmp(args[1], "alloc")); i++)
        printf("%d\n", cuMemAlloc_v2(&pointer, (size_t)atol(args[i]) << 20));
    fflush(stdout);
    if (holds) run(1e12, 1000);
    return 0;
}
