# cmake/hardening.cmake -- What makes a memory fault end the program instead of being used by an attacker.
#
# Canaries on stacks, checked copies (with optimisation only: the sanitizers bring their own), no writable
# relocations, no build paths in what is shipped. Options for vitune's own code; users of libvitune see none.
# SPDX-License-Identifier: Apache-2.0
target_compile_options(vitune_options INTERFACE -fstack-protector-strong -fstack-clash-protection
                       -ffile-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}/=)
target_compile_options(vitune_options INTERFACE
                       $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=2>)
target_link_options(vitune_options INTERFACE -Wl,-z,relro,-z,now -Wl,-z,noexecstack)
