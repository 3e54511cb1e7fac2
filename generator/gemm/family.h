// generator/gemm/family.h -- GemmFamily: a family of an operator that is one product of matrices,
// as its judge and the operator's other families know it.
//
// Each of these operators lists its families in one place (families.cpp of its folder). The
// parameter kFamily, a config's first, is a family's number in that list; a config without it is of
// the first. Tunables that a family does not have are 0 in its configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "generator/family.h"

namespace vitune {

// The block that a kernel computes at a time: edge problems of the judge follow from it. No rows:
// there are none, since what is called is chosen for the very problem.
struct GemmBlock {
  std::int64_t rows = 0, columns = 0;  // of the result
  std::int64_t depth = 0;              // that the product sums over, per step
};

class GemmFamily;
using GemmFamilies = std::span<const GemmFamily* const>;

class GemmFamily : public Family {
 public:
  std::string_view name() const final { return name_; }
  bool owns(const Config& config) const final;
  std::vector<Parameter> parameters(const Problem& problem) const final;
  ConfigWords words(const Problem& problem, const Config& config) const final;

  // Its own tunables. A name may be another family's too.
  virtual std::vector<Parameter> tunables() const = 0;
  virtual GemmBlock block(const Config& config) const = 0;

 protected:
  // `all`: the families of its operator, itself among them.
  GemmFamily(std::string_view name, GemmFamilies (*all)()) : name_(name), all_(all) {}

  // As words(), of its own tunables.
  virtual ConfigWords own_words(const Config& config) const = 0;
  // A config of its own tunables, as it is stored.
  Config whole(Config own) const;

 private:
  std::int64_t number() const;

  std::string_view name_;
  GemmFamilies (*all_)();
};

// The one of `all` that `config` is of. Throws Error(kFailure) for a number that none has.
const GemmFamily& gemm_family(GemmFamilies all, const Config& config);

// An H200's, for a device that does not say.
inline constexpr std::int64_t kUsualSms = 132;

// The SMs of a device; `unknown` for one that is known by its architecture alone.
std::int64_t sms_of(const DeviceInfo& device, std::int64_t unknown);

}  // namespace vitune
