// templates/attention_backward/dropout_params.cuh -- What gradients of attention with dropout are
// handed beside the rest.
//
// Plain C++ without includes. attention/params.cuh, attention/dropout_params.cuh and
// attention_backward/params.cuh come first; they are not named here because host and device find
// them by different paths.
#pragma once

namespace vitune {

struct AttentionBackwardDropoutParams {
  AttentionBackwardParams backward;
  AttentionDropout dropout;
};

}  // namespace vitune
