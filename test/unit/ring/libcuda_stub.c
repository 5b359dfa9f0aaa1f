/* A libcuda.so.1 on ordinary memory, so that the package cuda-bindings itself is in the tests:
 * how it finds the library, and how it passes numbers, structs and descriptors. Work is done at
 * once. Anything passed wrongly is answered with 1, CUDA_ERROR_INVALID_VALUE. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_CONTEXT = 201, NOT_FOUND = 500 };
enum { UNIT = 1 << 16, PINNED = 1, POSIX_FD = 1, DEVICE = 1, READ_WRITE = 3, FIRST = 1000 };

typedef struct { int type, handle_types, location_type, location_id; } Properties;
typedef struct { int location_type, location_id, flags; } Access;
typedef uint64_t Pointer;

static __thread int depth;
#define NEED_CONTEXT if (depth == 0) return NO_CONTEXT
#define NEED(fact) if (!(fact)) return INVALID

static int cuInit(unsigned flags) { return flags ? INVALID : OK; }
static int cuDriverGetVersion(int *version) { *version = 13000; return OK; }
static int cuDeviceGet(int *device, int ordinal) {
  NEED(ordinal == 0); *device = 0; return OK; }
static int cuDeviceGetName(char *name, int length, int device) {
  strncpy(name, "Stub GPU", length); return device ? INVALID : OK; }
static int cuDeviceGetUuid(char *uuid, int device) {
  for (int i = 0; i < 16; i++) uuid[i] = (char)(0xF0 + i);
  return device ? INVALID : OK; }
static int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 102 || attribute == 103; return device ? INVALID : OK; }
static int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = (void *)0xC0; return device ? INVALID : OK; }
static int cuCtxPushCurrent(void *context) { NEED(context == (void *)0xC0); depth++; return OK; }
static int cuCtxPopCurrent(void **context) {
  NEED_CONTEXT; *context = (void *)0xC0; depth--; return OK; }
static int cuCtxSynchronize(void) { NEED_CONTEXT; return OK; }

static int is_right(const Properties *p) {
  return p->type == PINNED && p->handle_types == POSIX_FD && p->location_type == DEVICE &&
         p->location_id == 0; }
static int cuMemGetAllocationGranularity(size_t *unit, const Properties *p, int option) {
  NEED_CONTEXT; NEED(is_right(p) && option == 0); *unit = UNIT; return OK; }
static int cuMemCreate(uint64_t *handle, size_t size, const Properties *p, uint64_t flags) {
  NEED_CONTEXT; NEED(is_right(p) && flags == 0 && size % UNIT == 0);
  if (size > 1 << 30) return NO_MEMORY;
  int fd = memfd_create("libcuda_stub", 0);
  NEED(ftruncate(fd, size) == 0); *handle = FIRST + fd; return OK; }
static int cuMemExportToShareableHandle(void *out, uint64_t handle, int type, uint64_t flags) {
  NEED(type == POSIX_FD && flags == 0); *(int *)out = dup(handle - FIRST); return OK; }
static int cuMemImportFromShareableHandle(uint64_t *handle, void *os_handle, int type) {
  int fd = (int)(intptr_t)os_handle;
  NEED(type == POSIX_FD && fcntl(fd, F_GETFD) >= 0); *handle = FIRST + dup(fd); return OK; }
static int cuMemRelease(uint64_t handle) { return close(handle - FIRST) ? INVALID : OK; }
static int cuMemAddressReserve(Pointer *got, size_t size, size_t align, Pointer at,
                               uint64_t flags) {
  NEED(align == 0 && at == 0 && flags == 0);
  void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(p != MAP_FAILED); *got = (Pointer)p; return OK; }
static int cuMemMap(Pointer at, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
  struct stat found;
  NEED(offset == 0 && flags == 0 && fstat(handle - FIRST, &found) == 0);
  NEED(size <= (size_t)found.st_size);
  return mmap((void *)at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, handle - FIRST, 0) ==
         MAP_FAILED ? INVALID : OK; }
static int cuMemSetAccess(Pointer at, size_t size, const Access *access, size_t count) {
  NEED(count == 1 && access->location_type == DEVICE && access->location_id == 0);
  NEED(access->flags == READ_WRITE);
  return mprotect((void *)at, size, PROT_READ | PROT_WRITE) ? INVALID : OK; }
static int cuMemUnmap(Pointer at, size_t size) {
  return mmap((void *)at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
         MAP_FAILED ? INVALID : OK; }
static int cuMemAddressFree(Pointer at, size_t size) {
  return munmap((void *)at, size) ? INVALID : OK; }

static int cuMemAlloc(Pointer *got, size_t size) {
  NEED_CONTEXT;
  size_t *p = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(p != MAP_FAILED); *p = size + 4096; *got = (Pointer)p + 4096; return OK; }
static int cuMemFree(Pointer at) {
  size_t *p = (size_t *)(at - 4096); return munmap(p, *p) ? INVALID : OK; }
static int cuMemHostRegister(void *at, size_t size, unsigned flags) {
  NEED_CONTEXT; NEED(at && size && (flags == 0 || flags == 8)); return OK; }
static int cuMemHostUnregister(void *at) { NEED(at); return OK; }

static int copy(void *target, const void *source, size_t size, void *stream) {
  NEED_CONTEXT; NEED(stream == (void *)0x77); memcpy(target, source, size); return OK; }
static int cuMemcpyDtoDAsync(Pointer target, Pointer source, size_t size, void *stream) {
  return copy((void *)target, (void *)source, size, stream); }
static int cuMemcpyHtoDAsync(Pointer target, const void *source, size_t size, void *stream) {
  return copy((void *)target, source, size, stream ? stream : (void *)0x77); }
static int cuMemcpyDtoHAsync(void *target, Pointer source, size_t size, void *stream) {
  return copy(target, (void *)source, size, stream ? stream : (void *)0x77); }
static int cuEventCreate(void **event, unsigned flags) {
  NEED_CONTEXT; NEED(flags == 3); *event = (void *)0xE0; return OK; }
static int cuEventDestroy(void *event) { NEED(event == (void *)0xE0); return OK; }
static int cuEventRecord(void *event, void *stream) {
  NEED_CONTEXT; NEED(event == (void *)0xE0 && (!stream || stream == (void *)0x77)); return OK; }
static int cuEventSynchronize(void *event) { NEED(event == (void *)0xE0); return OK; }
static int cuGetErrorName(int code, const char **name) { *name = "STUB"; return code ? OK : OK; }

#define CALL(name) {#name, (void *)name}
static const struct { const char *name; void *function; } calls[] = {
  CALL(cuInit), CALL(cuDriverGetVersion), CALL(cuDeviceGet), CALL(cuDeviceGetName),
  CALL(cuDeviceGetUuid), CALL(cuDeviceGetAttribute), CALL(cuDevicePrimaryCtxRetain),
  CALL(cuCtxPushCurrent), CALL(cuCtxPopCurrent), CALL(cuCtxSynchronize),
  CALL(cuMemGetAllocationGranularity), CALL(cuMemCreate), CALL(cuMemExportToShareableHandle),
  CALL(cuMemImportFromShareableHandle), CALL(cuMemRelease), CALL(cuMemAddressReserve),
  CALL(cuMemMap), CALL(cuMemSetAccess), CALL(cuMemUnmap), CALL(cuMemAddressFree),
  CALL(cuMemAlloc), CALL(cuMemFree), CALL(cuMemHostRegister), CALL(cuMemHostUnregister),
  CALL(cuMemcpyDtoDAsync), CALL(cuMemcpyHtoDAsync), CALL(cuMemcpyDtoHAsync), CALL(cuEventCreate),
  CALL(cuEventDestroy), CALL(cuEventRecord), CALL(cuEventSynchronize), CALL(cuGetErrorName),
};

int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                        int *status) {
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
    if (strcmp(calls[i].name, symbol) == 0) {
      *function = calls[i].function;
      if (status) *status = 0;
      return OK;
    }
  *function = NULL;
  if (status) *status = 1;
  return NOT_FOUND;
}
