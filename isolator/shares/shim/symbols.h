/* Objects that are loaded in this process, and their symbols, without dlsym: whatever glibc this is built on, it needs
 * none newer than 2.17, and a program that replaces dlsym changes nothing. */
#ifndef MGPU_SYMBOLS_H
#define MGPU_SYMBOLS_H
#include <stddef.h>

struct object;

/* The first loaded object whose path ends in `suffix`; null: there is none. It stays valid as long as it is loaded. */
const struct object *object_named(const char *suffix);
/* The address of a symbol that an object defines; null: it defines none of that name. */
void *symbol_of(const struct object *object, const char *name);
/* Write the path of `name` in the directory `region` beside the directory that an object is in. */
void path_beside(const struct object *object, const char *name, char *path, size_t size);
#endif
