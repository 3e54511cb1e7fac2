// templates/reference/group_norm_judge_params.cuh -- What the group norm's judge and yardstick are
// handed.
//
// Plain C++: the host fills this very struct and NVRTC reads it. group_norm/params.cuh comes first;
// it is not named here because host and device find it by different paths.
#pragma once

namespace vitune {

// The judge writes its answer dense, in fp32; the yardstick writes call.out like any kernel.
struct GroupNormJudgeParams {
  GroupNormParams call;
  double eps;
  float* out;
  long long images;
  int channels, positions, groups;  // groups: of an image
  int nhwc;
  int type, parameters;  // SupportType
  int activation;        // 0 none, 1 SiLU, 2 Mish
};

}  // namespace vitune
