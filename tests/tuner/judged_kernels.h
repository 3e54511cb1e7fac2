// tests/tuner/judged_kernels.h -- Kernels of any operator against the fp64 judge, as they are and
// with a mistake.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <span>
#include <string>

#include "generator/operator.h"
#include "tests/tuner/gpu_fixture.h"
#include "tuner/judge/verify.h"

namespace vitune {

// Another text in the place of some words of a template.
struct Mistake {
  const char* file;
  const char* words;
  const char* others;
};

// A wait that is left out, and what the emulated device says then (a regular expression).
struct MissingWait {
  const char* name;
  Mistake mistake;
  const char* fault;
};

inline void PrintTo(const MissingWait& each, std::ostream* out) { *out << each.name; }

class JudgedKernelsTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    context_ = std::make_unique<CudaContext>(driver_, 0);
    stream_ = std::make_unique<CudaStream>(*driver_);
    kernels_ = std::make_unique<SupportKernels>(*driver_, support_, device_);
    kernels_->probe(*driver_, *stream_);
  }

  Verifier verifier_of(const ProblemPtr& problem) const {
    return Verifier({*context_, *stream_, *kernels_, device_}, problem);
  }

  // A problem's text, with as many batch entries on a GPU that a CTA has several there too.
  std::string on_device(std::string text, const std::string& emulated,
                        const std::string& real) const {
    if (device_.name == "emulated device") return text;
    for (std::size_t at = 0; (at = text.find(emulated, at)) != text.npos; at += real.size()) {
      text.replace(at, emulated.size(), real);
    }
    return text;
  }

  // Empty if the kernel is right or pruned, else what is wrong with it.
  std::string verdict(Verifier& verifier, const Problem& problem, const Config& config,
                      const Mistake* mistake = nullptr) const {
    CompileRequest request = problem.op().request(problem, config, device_.arch());
    std::string text;
    for (EmbeddedFile& header : request.source.headers) {
      if (mistake == nullptr || header.path != mistake->file) continue;
      text = header.text;
      const std::size_t at = text.find(mistake->words);
      EXPECT_NE(at, text.npos) << mistake->file << " has no '" << mistake->words << "'";
      if (at == text.npos) continue;
      header.text = text.replace(at, std::string(mistake->words).size(), mistake->others);
    }
    const CompileResult compiled = compiler_->compile(request);
    if (compiled.status != CompileStatus::kOk) return compiled.log;
    // A kernel with a mistake is to be looked at, however slow it is.
    const bool pruned = problem.op().prune(problem, config, compiled.facts, device_).has_value();
    if (pruned && mistake == nullptr) return {};
    const CudaModule module(*driver_, compiled.cubin);
    try {
      const Verdict found = verifier.verify(module, config);
      return found.status == TrialStatus::kOk ? "" : found.reason;
    } catch (const Error& fault) {
      return fault.what();
    }
  }

  // The kernel is right as it is, and the judge sees each of the mistakes in it.
  void expect_seen(const ProblemPtr& problem, const Config& config,
                   std::span<const Mistake> mistakes) const {
    Verifier verifier = verifier_of(problem);
    ASSERT_EQ(verdict(verifier, *problem, config), "") << config.text();
    for (const Mistake& mistake : mistakes) {
      EXPECT_NE(verdict(verifier, *problem, config, &mistake), "")
          << mistake.words << " -> " << mistake.others << "; " << config.text();
    }
  }

  // A fault ends a process's use of the device: the kernel is launched in one of its own.
  void expect_fault(const ProblemPtr& problem, const Config& config, const Mistake& mistake,
                    const char* fault) const {
    if (device_.name != "emulated device") {
      GTEST_SKIP() << "only the emulated device looks for races";
    }
    Verifier verifier = verifier_of(problem);
    const auto launch = [&] {
      std::fputs(verdict(verifier, *problem, config, &mistake).c_str(), stderr);
      std::_Exit(0);
    };
    EXPECT_EXIT(launch(), testing::ExitedWithCode(0), fault);
  }

  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<SupportKernels> kernels_;
};

}  // namespace vitune
