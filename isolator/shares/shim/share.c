/* See share.h. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "saturating.h"

enum { HIGH_FD = 600, TRIES = 100000 }; /* programs close low descriptors, and reuse their numbers */

struct usage *usage;
static int lock_fd = -1; /* for the lock of accounts: what it holds goes when the program closes it */
static int map_fd = -1; /* that `usage` is mapped from: its locks last as long as the mapping, also once it is closed */
static const struct limits *limits_file;
static struct limits last; /* what was read whole last, for a writer that was killed */
static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static char usage_path[4200];
static int usage_flags;
static struct stat usage_status;

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int high(int fd) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
    if (moved < 0) return fd;
    close(fd);
    return moved;
}

/* By the system call: fstat is a symbol of glibc 2.33. */
static int status_of(int fd, struct stat *status) { return (int)syscall(SYS_fstat, fd, status); }

static void *mapped(int fd, size_t size, int protection) {
    struct stat status;
    if (status_of(fd, &status) || status.st_size < (off_t)size) return NULL; /* beyond its end waits SIGBUS */
    void *at = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int open_limits(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    limits_file = mapped(fd, sizeof *limits_file, PROT_READ);
    close(fd);
    if (!limits_file) errno = EINVAL;
    return limits_file ? 0 : -1;
}

static int open_for_locks(void) {
    int fd = open(usage_path, usage_flags | O_CLOEXEC);
    if (fd < 0) return -1;
    lock_fd = high(fd);
    return status_of(lock_fd, &usage_status);
}

static int map_usage(void) {
    int protection = usage_flags == O_RDWR ? PROT_READ | PROT_WRITE : PROT_READ;
    map_fd = open(usage_path, usage_flags | O_CLOEXEC);
    usage = map_fd < 0 ? NULL : mapped(map_fd, sizeof *usage, protection);
    return usage && usage->magic == USAGE_MAGIC && usage->version == LAYOUT_VERSION ? 0 : -1;
}

void share_closed(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    last_lock = fresh;
    if (lock_fd >= 0) close(lock_fd);
    if (map_fd >= 0) close(map_fd);
    if (usage) munmap(usage, sizeof *usage); /* else the parent's slot would seem to live as long as this process */
    lock_fd = map_fd = -1;
    usage = NULL;
}

int share_forked(void) {
    share_closed();
    return open_for_locks() || map_usage();
}

static int is_ours(int fd) {
    struct stat now;
    return !status_of(fd, &now) && now.st_dev == usage_status.st_dev && now.st_ino == usage_status.st_ino;
}

int share_reopened(void) { return is_ours(lock_fd) ? 0 : open_for_locks(); }

static int say(char *why, size_t size, const char *path, const char *what) {
    snprintf(why, size, "%s: %s", path, what);
    return -1;
}

/* Copy all limits while nobody writes them. 0: right. */
static int copied(struct limits *to) {
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = __atomic_load_n(&limits_file->generation, __ATOMIC_ACQUIRE);
        memcpy(to, limits_file, sizeof *to);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (!(before & 1) && __atomic_load_n(&limits_file->generation, __ATOMIC_RELAXED) == before) return 0;
        sched_yield();
    }
    return -1;
}

int share_open(const struct object *real, int flags, char *why, size_t size) {
    char path[4200];
    path_beside(real, "limits", path, sizeof path);
    if (open_limits(path)) return say(why, size, path, strerror(errno));
    if (copied(&last) || last.magic != LIMITS_MAGIC || last.version != LAYOUT_VERSION)
        return say(why, size, path, "it is damaged");
    path_beside(real, "usage", usage_path, sizeof usage_path);
    usage_flags = flags;
    if (open_for_locks()) return say(why, size, usage_path, strerror(errno));
    return map_usage() ? say(why, size, usage_path, "it is damaged") : 0;
}

/* See that `last` is what the file has. A file that stays half written, for its writer was killed, leaves it as it was,
 * and is waited for only once. */
static void refresh(void) {
    static uint64_t given_up;
    struct limits fresh;
    uint64_t generation = __atomic_load_n(&limits_file->generation, __ATOMIC_ACQUIRE);
    if (generation == last.generation || (generation & 1 && generation == given_up)) return;
    if (copied(&fresh))
        given_up = generation;
    else if (fresh.magic == LIMITS_MAGIC)
        last = fresh;
}

int limits_of(int card, struct card_limits *limits) {
    static const unsigned char none[16];
    if (card < 0 || card >= MOST_CARDS) return -1;
    pthread_mutex_lock(&last_lock);
    refresh();
    *limits = last.card[card];
    pthread_mutex_unlock(&last_lock);
    return memcmp(limits->uuid, none, sizeof none) ? 0 : -1;
}

int card_with(const unsigned char uuid[16]) {
    struct card_limits limits;
    for (int card = 0; card < MOST_CARDS; card++)
        if (!limits_of(card, &limits) && !memcmp(limits.uuid, uuid, sizeof limits.uuid)) return card;
    return -1;
}

int has_windows(void) { return __atomic_load_n(&limits_file->windows, __ATOMIC_RELAXED) != 0; }

static int lock_call(int fd, int command, short type, int at, struct flock *answer) {
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int result;
    while ((result = fcntl(fd, command, &lock)) && errno == EINTR) {}
    if (answer) *answer = lock;
    return result;
}

void accounts_lock(void) { lock_call(lock_fd, F_OFD_SETLKW, F_WRLCK, 0, NULL); }
void accounts_unlock(void) { lock_call(lock_fd, F_OFD_SETLK, F_UNLCK, 0, NULL); }

int slot_lock(int slot) { return lock_call(map_fd, F_OFD_SETLK, F_WRLCK, 1 + slot, NULL); }

void slot_locked(void) {
    close(map_fd);
    map_fd = -1;
}

int slot_lives(int slot) {
    struct flock answer;
    return lock_call(lock_fd, F_OFD_GETLK, F_WRLCK, 1 + slot, &answer) == 0 && answer.l_type != F_UNLCK;
}

static uint64_t used_by(int card, const struct card_limits *limits, int (*counts)(int slot)) {
    uint64_t used = limits->unaccounted;
    uint32_t slots = usage->slots < MOST_PROCESSES ? usage->slots : MOST_PROCESSES;
    for (uint32_t slot = 0; slot < slots; slot++) {
        const struct process_usage *process = &usage->process[slot];
        if (process->pid && counts((int)slot)) used = plus(used, plus(process->held[card], process->context[card]));
    }
    return used;
}

static int any_slot(int slot) { return slot >= 0; }

uint64_t used_of(int card, const struct card_limits *limits) { return used_by(card, limits, any_slot); }

uint64_t used_by_living(int card, const struct card_limits *limits) { return used_by(card, limits, slot_lives); }
