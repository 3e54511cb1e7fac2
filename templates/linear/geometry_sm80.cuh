// templates/linear/geometry_sm80.cuh -- GemmSm80: what a kernel of the families sm80 of linear
// layers and of their weight gradients takes of a CTA, and the rules that its tunables obey.
//
// Plain C++ without includes: the space and the launch plan compute with this very struct, and
// NVRTC reads it; a generated Config holds one. All members are int, so that a config's geometry is
// written down as the numbers in it.
#pragma once

namespace vitune {

struct GemmSm80 {
  // Tunables.
  int block_m, block_n;  // rows and columns of the result that a CTA computes
  int block_k;           // of the depth that products sum over, per step
  int warp_m, warp_n;    // rows and columns of a warp's part of the block
  int stages;            // steps whose operands are in shared memory or on their way
  int raster;            // rows of tiles that are gone through together, column by column

  // Facts of the problem: which operands have a row of shared memory for each step of the depth,
  // not for each row or column of the result.
  int a_across, b_across;
  int row_sums;  // a warp adds the rows of an operand up too

  constexpr int warps() const { return block_m / warp_m * (block_n / warp_n); }
  constexpr int threads() const { return 32 * warps(); }
  // MN-major rows lie in atom columns of 64 columns, or of 32.
  static constexpr int atom_columns(int block) { return block % 64 == 0 ? 64 : 32; }
  constexpr int operand_bytes(int block, int across) const {
    const int width = across != 0 ? atom_columns(block) : 1;
    return 2 * block_k * ((block + width - 1) / width * width);
  }
  constexpr int stage_bytes() const {
    return operand_bytes(block_m, a_across) + operand_bytes(block_n, b_across);
  }
  // Sums of 16 rows of a warp on their way out, in fp32. Eight words more than the columns: eight
  // rows then begin in four different groups of eight banks.
  constexpr int staging_pitch() const { return 4 * (warp_n + 8); }
  constexpr int staging_bytes() const { return 16 * staging_pitch(); }
  constexpr int shared_bytes() const {
    const int ring = stages * stage_bytes(), staging = warps() * staging_bytes();
    return ring > staging ? ring : staging;
  }
  constexpr int sums() const { return warp_m * warp_n / 32; }  // of a thread
  // The registers that a thread needs at least: its sums, the operands of two steps of sixteen,
  // addresses, places in the ring.
  constexpr int registers() const {
    return sums() + 2 * (warp_m / 4 + warp_n / 4) + (row_sums != 0 ? 40 : 32);
  }

  struct Rule {
    const char* sentence;
    int GemmSm80::*reads[6];
    bool (*holds)(const GemmSm80&);
  };
};

struct GemmSm80Rules {
  GemmSm80::Rule all[3];
};

// A function, not a constant: NVRTC would keep a constant's sentences in each cubin.
constexpr GemmSm80Rules gemm_sm80_rules() {
  return {{
      {"steps: of 32 or 64, two at least in shared memory",
       {&GemmSm80::block_k, &GemmSm80::stages},
       [](const GemmSm80& g) { return (g.block_k == 32 || g.block_k == 64) && g.stages >= 2; }},
      {"warps: whole parts of the block, of 16 rows or multiples by 16, 32, 64 or 128 columns, 4 "
       "to "
       "16",
       {&GemmSm80::block_m, &GemmSm80::block_n, &GemmSm80::warp_m, &GemmSm80::warp_n},
       [](const GemmSm80& g) {
         const bool is_known =
             g.warp_n == 16 || g.warp_n == 32 || g.warp_n == 64 || g.warp_n == 128;
         return is_known && g.warp_m % 16 == 0 && g.block_m % g.warp_m == 0 &&
                g.block_n % g.warp_n == 0 && g.warps() >= 4 && g.warps() <= 16;
       }},
      {"registers: at most 128 sums of a thread, and 65536 registers of a CTA",
       {&GemmSm80::block_m, &GemmSm80::block_n, &GemmSm80::warp_m, &GemmSm80::warp_n},
       [](const GemmSm80& g) {
         return g.sums() <= 128 && g.registers() <= 255 && g.threads() * g.registers() <= 65536;
       }},
  }};
}

}  // namespace vitune
