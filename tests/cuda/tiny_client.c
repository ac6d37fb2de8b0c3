/* A program without a C library of its own: its exit code says what cuInit and two allocations of 600 MiB answered. */
int cuInit(unsigned);
int cuMemAlloc_v2(unsigned long long *, unsigned long long);

static void leave(int code) { __asm__ volatile("syscall" ::"a"(231), "D"(code) : "rcx", "r11", "memory"); }

__attribute__((force_align_arg_pointer)) void _start(void) {
    unsigned long long pointer;
    if (cuInit(0)) leave(100);
    int first = cuMemAlloc_v2(&pointer, 600ull << 20), second = cuMemAlloc_v2(&pointer, 600ull << 20);
    leave(10 * first + second);
}
