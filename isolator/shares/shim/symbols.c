/* See symbols.h. Formats: gabi (ELF), gnu_hash of the GNU linker, dl_iterate_phdr(3). */
#define _GNU_SOURCE
#include "symbols.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct object {
    const char *suffix;
    char path[4096];
    uintptr_t base;
    const ElfW(Dyn) * dynamic;
};

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash, *hash;
};

static int ends_in(const char *text, const char *suffix) {
    size_t length = strlen(text), end = strlen(suffix);
    return length >= end && !strcmp(text + length - end, suffix);
}

static int look_at(struct dl_phdr_info *info, size_t size, void *wanted) {
    struct object *object = wanted;
    (void)size;
    if (!ends_in(info->dlpi_name, object->suffix) || strlen(info->dlpi_name) >= sizeof object->path) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            object->dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    object->base = info->dlpi_addr;
    strcpy(object->path, info->dlpi_name);
    return object->dynamic != NULL;
}

const struct object *object_named(const char *suffix) {
    struct object *object = calloc(1, sizeof *object);
    if (!object) return NULL;
    object->suffix = suffix;
    if (dl_iterate_phdr(look_at, object)) return object;
    free(object);
    return NULL;
}

/* glibc has added the base to addresses of the dynamic section, except where that section is read-only. */
static const void *address(const struct object *object, uintptr_t value) {
    return (const void *)(value < object->base ? value + object->base : value);
}

static struct tables tables_of(const struct object *object) {
    struct tables tables = {0};
    for (const ElfW(Dyn) *entry = object->dynamic; entry->d_tag != DT_NULL; entry++) {
        const void *at = address(object, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB) tables.symbols = at;
        if (entry->d_tag == DT_STRTAB) tables.strings = at;
        if (entry->d_tag == DT_GNU_HASH) tables.gnu_hash = at;
        if (entry->d_tag == DT_HASH) tables.hash = at;
    }
    return tables;
}

static int is_it(const struct tables *tables, uint32_t index, const char *name) {
    const ElfW(Sym) *symbol = &tables->symbols[index];
    return symbol->st_shndx != SHN_UNDEF && !strcmp(tables->strings + symbol->st_name, name);
}

/* The index of a symbol; 0, which is never one: there is none. */
static uint32_t in_gnu_hash(const struct tables *tables, const char *name) {
    const uint32_t *head = tables->gnu_hash; /* buckets, first symbol, words of the filter, shift */
    uint32_t hash = 5381;
    for (const unsigned char *letter = (const void *)name; *letter; letter++) hash = hash * 33 + *letter;
    const uint32_t *buckets = (const uint32_t *)((const ElfW(Addr) *)(head + 4) + head[2]), *chain = buckets + head[0];
    uint32_t index = buckets[hash % head[0]];
    if (index < head[1]) return 0;
    for (;; index++) {
        uint32_t link = chain[index - head[1]];
        if ((link | 1) == (hash | 1) && is_it(tables, index, name)) return index;
        if (link & 1) return 0; /* the last of its bucket */
    }
}

static uint32_t in_hash(const struct tables *tables, const char *name) {
    uint32_t symbols = tables->hash[1]; /* as many as links of chains */
    for (uint32_t index = 1; index < symbols; index++)
        if (is_it(tables, index, name)) return index;
    return 0;
}

void *symbol_of(const struct object *object, const char *name) {
    struct tables tables = tables_of(object);
    uint32_t index = 0;
    if (!tables.symbols || !tables.strings) return NULL;
    if (tables.gnu_hash)
        index = in_gnu_hash(&tables, name);
    else if (tables.hash)
        index = in_hash(&tables, name);
    return index ? (void *)(object->base + tables.symbols[index].st_value) : NULL;
}

void path_beside(const struct object *object, const char *name, char *path, size_t size) {
    const char *slash = strrchr(object->path, '/');
    int length = slash ? (int)(slash - object->path) : 1;
    snprintf(path, size, "%.*s/../region/%s", length, slash ? object->path : ".", name);
}
