# cmake/install.cmake -- What `make install` puts where.
include(GNUInstallDirs)
install(TARGETS vitune RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/vitune)
