// templates/primitives/wgmma.cuh -- Warpgroup matrix products of sm_90a: m64nNk16, asynchronous.
//
// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". The four warps of a warpgroup issue
// each instruction together; warp w holds rows 16 w .. 16 w + 15 of the 64, in fragments like those
// of mma.m16n8k16 (element.cuh). B lies in shared memory in a swizzled tile
// (collective/smem_tile.cuh). Between an issue and its wait neither the accumulators nor the A
// registers may be touched.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// Registers written before are seen by the products issued after.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Closes a group of products.
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending of the newest groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Ordinary writes to shared memory before are seen by products and bulk copies issued after a
// barrier.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Products with kColumns columns of B of element type kType (element.cuh). d has kColumns / 2
// registers; where `accumulate` is false, d is overwritten. It must hold something even then: of
// two products into registers that hold nothing ptxas 13.0 takes what follows from both to be
// equal.
//   shared_a     A in shared memory; of each operand the depth is along its rows, or across them
//                in whole atom columns of 64 (shared_a_across: of A alone)
//   register_a   A in registers, B across its rows
template <int kType, int kColumns>
struct Wgmma;

// The operand lists: accumulators by number in the text (%0 ...) and as constraints.
#define VITUNE_D8 "%0,%1,%2,%3"
#define VITUNE_C8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define VITUNE_D16 VITUNE_D8 ",%4,%5,%6,%7"
#define VITUNE_C16 VITUNE_C8, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define VITUNE_D24 VITUNE_D16 ",%8,%9,%10,%11"
#define VITUNE_C24 VITUNE_C16, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define VITUNE_D32 VITUNE_D24 ",%12,%13,%14,%15"
#define VITUNE_C32 VITUNE_C24, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define VITUNE_D40 VITUNE_D32 ",%16,%17,%18,%19"
#define VITUNE_C40 VITUNE_C32, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define VITUNE_D48 VITUNE_D40 ",%20,%21,%22,%23"
#define VITUNE_C48 VITUNE_C40, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define VITUNE_D56 VITUNE_D48 ",%24,%25,%26,%27"
#define VITUNE_C56 VITUNE_C48, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define VITUNE_D64 VITUNE_D56 ",%28,%29,%30,%31"
#define VITUNE_C64 VITUNE_C56, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define VITUNE_D72 VITUNE_D64 ",%32,%33,%34,%35"
#define VITUNE_C72 VITUNE_C64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define VITUNE_D80 VITUNE_D72 ",%36,%37,%38,%39"
#define VITUNE_C80 VITUNE_C72, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define VITUNE_D88 VITUNE_D80 ",%40,%41,%42,%43"
#define VITUNE_C88 VITUNE_C80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define VITUNE_D96 VITUNE_D88 ",%44,%45,%46,%47"
#define VITUNE_C96 VITUNE_C88, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define VITUNE_D104 VITUNE_D96 ",%48,%49,%50,%51"
#define VITUNE_C104 VITUNE_C96, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define VITUNE_D112 VITUNE_D104 ",%52,%53,%54,%55"
#define VITUNE_C112 VITUNE_C104, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define VITUNE_D120 VITUNE_D112 ",%56,%57,%58,%59"
#define VITUNE_C120 VITUNE_C112, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define VITUNE_D128 VITUNE_D120 ",%60,%61,%62,%63"
#define VITUNE_C128 VITUNE_C120, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define VITUNE_D136 VITUNE_D128 ",%64,%65,%66,%67"
#define VITUNE_C136 VITUNE_C128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define VITUNE_D144 VITUNE_D136 ",%68,%69,%70,%71"
#define VITUNE_C144 VITUNE_C136, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define VITUNE_D152 VITUNE_D144 ",%72,%73,%74,%75"
#define VITUNE_C152 VITUNE_C144, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define VITUNE_D160 VITUNE_D152 ",%76,%77,%78,%79"
#define VITUNE_C160 VITUNE_C152, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define VITUNE_D168 VITUNE_D160 ",%80,%81,%82,%83"
#define VITUNE_C168 VITUNE_C160, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define VITUNE_D176 VITUNE_D168 ",%84,%85,%86,%87"
#define VITUNE_C176 VITUNE_C168, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define VITUNE_D184 VITUNE_D176 ",%88,%89,%90,%91"
#define VITUNE_C184 VITUNE_C176, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define VITUNE_D192 VITUNE_D184 ",%92,%93,%94,%95"
#define VITUNE_C192 VITUNE_C184, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define VITUNE_D200 VITUNE_D192 ",%96,%97,%98,%99"
#define VITUNE_C200 VITUNE_C192, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define VITUNE_D208 VITUNE_D200 ",%100,%101,%102,%103"
#define VITUNE_C208 VITUNE_C200, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define VITUNE_D216 VITUNE_D208 ",%104,%105,%106,%107"
#define VITUNE_C216 VITUNE_C208, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define VITUNE_D224 VITUNE_D216 ",%108,%109,%110,%111"
#define VITUNE_C224 VITUNE_C216, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define VITUNE_D232 VITUNE_D224 ",%112,%113,%114,%115"
#define VITUNE_C232 VITUNE_C224, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define VITUNE_D240 VITUNE_D232 ",%116,%117,%118,%119"
#define VITUNE_C240 VITUNE_C232, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define VITUNE_D248 VITUNE_D240 ",%120,%121,%122,%123"
#define VITUNE_C248 VITUNE_C240, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define VITUNE_D256 VITUNE_D248 ",%124,%125,%126,%127"
#define VITUNE_C256 VITUNE_C248, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

// kType, type's name, columns, and the numbers of the operands behind the accumulators.
#define VITUNE_WGMMA(type, name, n, i0, i1, i2, i3, i4, i5)                                        \
  template <>                                                                                      \
  struct Wgmma<type, n> {                                                                          \
    template <bool kAAcross = false, bool kBAcross = false>                                        \
    static __device__ __forceinline__ void shared_a(float (&d)[n / 2], u64 a, u64 b,               \
                                                    bool accumulate) {                             \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i2                                        \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name                 \
                   " {" VITUNE_D##n "}, %" #i0 ", %" #i1 ", p, 1, 1, %" #i3 ", %" #i4 ";\n}"       \
                   : VITUNE_C##n                                                                   \
                   : "l"(a), "l"(b), "r"(int(accumulate)), "n"(int(kAAcross)),                     \
                     "n"(int(kBAcross)));                                                          \
    }                                                                                              \
    static __device__ __forceinline__ void shared_a_across(float (&d)[n / 2], u64 a, u64 b,        \
                                                           bool accumulate) {                      \
      shared_a<true>(d, a, b, accumulate);                                                         \
    }                                                                                              \
    static __device__ __forceinline__ void register_a(float (&d)[n / 2], const u32 (&a)[4], u64 b, \
                                                      bool accumulate) {                           \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #i5                                        \
                   ", 0;\n"                                                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." name "." name                 \
                   " {" VITUNE_D##n "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4              \
                                    ", p, 1, 1, 1;\n}"                                             \
                   : VITUNE_C##n                                                                   \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)));    \
    }                                                                                              \
  };
#define VITUNE_WGMMA_BOTH(n, i0, i1, i2, i3, i4, i5) \
  VITUNE_WGMMA(0, "f16", n, i0, i1, i2, i3, i4, i5)  \
  VITUNE_WGMMA(1, "bf16", n, i0, i1, i2, i3, i4, i5)
VITUNE_WGMMA_BOTH(8, 4, 5, 6, 7, 8, 9)
VITUNE_WGMMA_BOTH(16, 8, 9, 10, 11, 12, 13)
VITUNE_WGMMA_BOTH(24, 12, 13, 14, 15, 16, 17)
VITUNE_WGMMA_BOTH(32, 16, 17, 18, 19, 20, 21)
VITUNE_WGMMA_BOTH(40, 20, 21, 22, 23, 24, 25)
VITUNE_WGMMA_BOTH(48, 24, 25, 26, 27, 28, 29)
VITUNE_WGMMA_BOTH(56, 28, 29, 30, 31, 32, 33)
VITUNE_WGMMA_BOTH(64, 32, 33, 34, 35, 36, 37)
VITUNE_WGMMA_BOTH(72, 36, 37, 38, 39, 40, 41)
VITUNE_WGMMA_BOTH(80, 40, 41, 42, 43, 44, 45)
VITUNE_WGMMA_BOTH(88, 44, 45, 46, 47, 48, 49)
VITUNE_WGMMA_BOTH(96, 48, 49, 50, 51, 52, 53)
VITUNE_WGMMA_BOTH(104, 52, 53, 54, 55, 56, 57)
VITUNE_WGMMA_BOTH(112, 56, 57, 58, 59, 60, 61)
VITUNE_WGMMA_BOTH(120, 60, 61, 62, 63, 64, 65)
VITUNE_WGMMA_BOTH(128, 64, 65, 66, 67, 68, 69)
VITUNE_WGMMA_BOTH(136, 68, 69, 70, 71, 72, 73)
VITUNE_WGMMA_BOTH(144, 72, 73, 74, 75, 76, 77)
VITUNE_WGMMA_BOTH(152, 76, 77, 78, 79, 80, 81)
VITUNE_WGMMA_BOTH(160, 80, 81, 82, 83, 84, 85)
VITUNE_WGMMA_BOTH(168, 84, 85, 86, 87, 88, 89)
VITUNE_WGMMA_BOTH(176, 88, 89, 90, 91, 92, 93)
VITUNE_WGMMA_BOTH(184, 92, 93, 94, 95, 96, 97)
VITUNE_WGMMA_BOTH(192, 96, 97, 98, 99, 100, 101)
VITUNE_WGMMA_BOTH(200, 100, 101, 102, 103, 104, 105)
VITUNE_WGMMA_BOTH(208, 104, 105, 106, 107, 108, 109)
VITUNE_WGMMA_BOTH(216, 108, 109, 110, 111, 112, 113)
VITUNE_WGMMA_BOTH(224, 112, 113, 114, 115, 116, 117)
VITUNE_WGMMA_BOTH(232, 116, 117, 118, 119, 120, 121)
VITUNE_WGMMA_BOTH(240, 120, 121, 122, 123, 124, 125)
VITUNE_WGMMA_BOTH(248, 124, 125, 126, 127, 128, 129)
VITUNE_WGMMA_BOTH(256, 128, 129, 130, 131, 132, 133)

}  // namespace vitune
