// generator/source_tokens.h -- A source as its tokens: what remains without comments and layout.
//
// A template may be formatted or explained anew without a kernel of it becoming another one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/digest.h"
#include "generator/source.h"

namespace vitune {

// The tokens of C++ or CUDA text, a NUL after each. Two texts with the same tokens compile to the
// same kernels, unless a text asks for its lines (__LINE__).
//
// A word, a number, a literal with its prefix and suffix, and each of ( ) { } [ ] ; , ? ~ is one
// token; so is a run of other operator characters without a blank between them, which is stricter
// than the language ("> >" is not ">>") and needs no list of operators. A directive has a token for
// its end, and one for each place where blanks divide it: `#define F (x)` is not `#define F(x)`.
// Where a macro makes a string of its argument, so has the whole text, which then begins with the
// token "blanks".
// Text that no compiler would read alike everywhere (a line joined inside a word, an open literal)
// is one token from there on, as it stands.
std::string tokens_of(std::string_view text);

// SHA-256 over the tokens of the main text and every header's path and tokens. A process reads each
// embedded file once.
Digest token_digest(const Source& source);

}  // namespace vitune
