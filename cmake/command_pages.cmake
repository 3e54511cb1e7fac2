# cmake/command_pages.cmake -- The manual page and the shells' completion scripts, written by the command.
#
# They are made of the descriptions that the command's own help is made of, so they are written by the
# built command itself. Where it cannot run (a cross build) they are left out: 'vitune man' and
# 'vitune completion' print them on the machine that has it.
# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)
if(CMAKE_CROSSCOMPILING)
  message(STATUS "vitune: the man page and completion scripts are not made in a cross build")
  return()
endif()

# With the command itself, so that whoever builds the target vitune can install.
set(vitune_pages ${CMAKE_CURRENT_BINARY_DIR}/pages)
file(MAKE_DIRECTORY ${vitune_pages})
add_custom_command(
  TARGET vitune POST_BUILD
  COMMAND vitune man > ${vitune_pages}/vitune.1
  COMMAND vitune completion bash > ${vitune_pages}/vitune
  COMMAND vitune completion zsh > ${vitune_pages}/_vitune
  COMMAND vitune completion fish > ${vitune_pages}/vitune.fish
  BYPRODUCTS ${vitune_pages}/vitune.1 ${vitune_pages}/vitune ${vitune_pages}/_vitune
             ${vitune_pages}/vitune.fish
  COMMENT "Writing vitune(1) and the completion scripts" VERBATIM)

install(FILES ${vitune_pages}/vitune.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${vitune_pages}/vitune DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${vitune_pages}/_vitune DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${vitune_pages}/vitune.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
