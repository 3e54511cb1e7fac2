# cmake/install.cmake -- What `make install` puts where: the command and its data.
include(GNUInstallDirs)
install(TARGETS vitune RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/vitune)
install(FILES README.md CHANGELOG.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
