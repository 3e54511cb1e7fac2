// generator/problem.h -- Problem: what is asked of an operator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace vitune {

class Operator;

// Immutable, valid and canonical. Each operator derives its own and knows them again.
class Problem {
 public:
  virtual ~Problem() = default;
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  const Operator& op() const { return *operator_; }
  // Canonical: equal problems have equal texts, and parse_problem() gives it back. Its first word
  // is the operator's name.
  const std::string& text() const { return text_; }
  std::string operator_name() const;

 protected:
  Problem(const Operator& of, std::string text) : operator_(&of), text_(std::move(text)) {}

 private:
  const Operator* operator_;
  std::string text_;
};

using ProblemPtr = std::shared_ptr<const Problem>;

// True if both ask for the same. That pointers are equal says less: it is not asked by mistake.
bool operator==(const ProblemPtr&, const ProblemPtr&) = delete;
inline bool is_same(const Problem& a, const Problem& b) { return a.text() == b.text(); }

// Reads the text of a problem of any operator. Throws Error(kUsage) for a malformed one or an
// operator that does not exist, Error(kUnsupported) for what is outside the kernels' reach.
ProblemPtr parse_problem(std::string_view text);

}  // namespace vitune
