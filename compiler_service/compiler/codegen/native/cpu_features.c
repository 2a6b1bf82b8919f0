/* cpu_features.c - does this CPU have what the kernels were compiled for? Asked before the first kernel runs, because the
 * other answer is SIGILL. */
#include "runtime.h"

#include <string.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#elif defined(__linux__)
#include <sys/auxv.h>
#endif

enum { ABSENT, PRESENT, UNKNOWN };

#if defined(__x86_64__) || defined(__i386__)
/* Intel SDM volume 2A, CPUID; `state` are the XCR0 bits that the operating system must save. */
enum { EAX, EBX, ECX, EDX };
enum { STATE_NONE = 0, STATE_AVX = 0x6, STATE_AVX512 = 0xe6, STATE_AMX = 0x60000 };
typedef struct {
  const char *name;
  unsigned leaf, subleaf, reg, bit, state;
} x86_feature;

static const x86_feature features_table[] = {
    {"sse3", 1, 0, ECX, 0, STATE_NONE},
    {"pclmul", 1, 0, ECX, 1, STATE_NONE},
    {"ssse3", 1, 0, ECX, 9, STATE_NONE},
    {"fma", 1, 0, ECX, 12, STATE_AVX},
    {"cx16", 1, 0, ECX, 13, STATE_NONE},
    {"sse4.1", 1, 0, ECX, 19, STATE_NONE},
    {"sse4.2", 1, 0, ECX, 20, STATE_NONE},
    {"movbe", 1, 0, ECX, 22, STATE_NONE},
    {"popcnt", 1, 0, ECX, 23, STATE_NONE},
    {"aes", 1, 0, ECX, 25, STATE_NONE},
    {"avx", 1, 0, ECX, 28, STATE_AVX},
    {"f16c", 1, 0, ECX, 29, STATE_AVX},
    {"lzcnt", 0x80000001, 0, ECX, 5, STATE_NONE},
    {"bmi", 7, 0, EBX, 3, STATE_NONE},
    {"avx2", 7, 0, EBX, 5, STATE_AVX},
    {"bmi2", 7, 0, EBX, 8, STATE_NONE},
    {"avx512f", 7, 0, EBX, 16, STATE_AVX512},
    {"avx512dq", 7, 0, EBX, 17, STATE_AVX512},
    {"adx", 7, 0, EBX, 19, STATE_NONE},
    {"avx512ifma", 7, 0, EBX, 21, STATE_AVX512},
    {"avx512cd", 7, 0, EBX, 28, STATE_AVX512},
    {"avx512bw", 7, 0, EBX, 30, STATE_AVX512},
    {"avx512vl", 7, 0, EBX, 31, STATE_AVX512},
    {"avx512vbmi", 7, 0, ECX, 1, STATE_AVX512},
    {"avx512vbmi2", 7, 0, ECX, 6, STATE_AVX512},
    {"gfni", 7, 0, ECX, 8, STATE_NONE},
    {"vaes", 7, 0, ECX, 9, STATE_AVX},
    {"vpclmulqdq", 7, 0, ECX, 10, STATE_AVX},
    {"avx512vnni", 7, 0, ECX, 11, STATE_AVX512},
    {"avx512bitalg", 7, 0, ECX, 12, STATE_AVX512},
    {"avx512vpopcntdq", 7, 0, ECX, 14, STATE_AVX512},
    {"amx-bf16", 7, 0, EDX, 22, STATE_AMX},
    {"avx512fp16", 7, 0, EDX, 23, STATE_AVX512},
    {"amx-tile", 7, 0, EDX, 24, STATE_AMX},
    {"amx-int8", 7, 0, EDX, 25, STATE_AMX},
    {"avxvnni", 7, 1, EAX, 4, STATE_AVX},
    {"avx512bf16", 7, 1, EAX, 5, STATE_AVX512},
};

/* XCR0, or 0 when the operating system does not use XSAVE. */
static unsigned saved_state(void) {
  unsigned registers[4] = {0}, low = 0, high = 0;
  if (!__get_cpuid(1, &registers[EAX], &registers[EBX], &registers[ECX], &registers[EDX])) return 0;
  if (!(registers[ECX] >> 27 & 1)) return 0;
  __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static int has_feature(const char *name) {
  for (size_t i = 0; i < sizeof(features_table) / sizeof(*features_table); i++) {
    const x86_feature *row = &features_table[i];
    unsigned registers[4] = {0};
    if (strcmp(row->name, name)) continue;
    if (!__get_cpuid_count(row->leaf, row->subleaf, &registers[EAX], &registers[EBX], &registers[ECX], &registers[EDX]))
      return ABSENT;
    if (row->state && (saved_state() & row->state) != row->state) return ABSENT;
    return registers[row->reg] >> row->bit & 1 ? PRESENT : ABSENT;
  }
  return UNKNOWN;
}
#elif defined(__aarch64__) && defined(__linux__)
/* Linux arch/arm64/include/uapi/asm/hwcap.h */
typedef struct {
  const char *name;
  unsigned long type;
  int bit;
} hwcap_feature;

static const hwcap_feature features_table[] = {
    {"fp-armv8", AT_HWCAP, 0}, {"neon", AT_HWCAP, 1},     {"aes", AT_HWCAP, 3},   {"sha2", AT_HWCAP, 6},
    {"crc", AT_HWCAP, 7},      {"lse", AT_HWCAP, 8},      {"fullfp16", AT_HWCAP, 10}, {"rdm", AT_HWCAP, 12},
    {"dotprod", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},     {"fp16fml", AT_HWCAP, 23},  {"sve2", AT_HWCAP2, 1},
    {"i8mm", AT_HWCAP2, 13},   {"bf16", AT_HWCAP2, 14},   {"sme", AT_HWCAP2, 23},
};

static int has_feature(const char *name) {
  for (size_t i = 0; i < sizeof(features_table) / sizeof(*features_table); i++) {
    const hwcap_feature *row = &features_table[i];
    if (!strcmp(row->name, name)) return getauxval(row->type) >> row->bit & 1 ? PRESENT : ABSENT;
  }
  return UNKNOWN;
}
#elif defined(__riscv) && defined(__linux__)
/* AT_HWCAP has one bit per letter of the ISA string. */
static int has_feature(const char *name) {
  if (name[0] < 'a' || name[0] > 'z' || name[1]) return UNKNOWN;
  return getauxval(AT_HWCAP) >> (name[0] - 'a') & 1 ? PRESENT : ABSENT;
}
#else
static int has_feature(const char *name) {
  (void)name;
  return UNKNOWN;
}
#endif

const char *ingot_missing_feature(const char *features, char *name, size_t capacity) {
  while (features && *features) {
    size_t length = strcspn(features, ",");
    if (length && length < capacity) {
      memcpy(name, features, length);
      name[length] = 0;
      if (has_feature(name) == ABSENT) return name;
    }
    features += length + (features[length] == ',');
  }
  return NULL;
}
