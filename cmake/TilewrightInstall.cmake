# The installed tree: runs from any folder. And the package `tilewright`, for find_package.
#
#   bin/                    programs: what they start or open they find beside themselves or in ../lib
#   lib/                    client library, virtual GPU
#   include/                headers of the client
#   share/tilewright/       configs, kernel templates
#   lib/cmake/tilewright/   tilewright::client
include_guard()
include(CMakePackageConfigHelpers)

# Programs and shared objects; a part of the tree that is not built yet is not installed.
set(TILEWRIGHT_PROGRAMS tilewright tilewrightd tilewright-compile-worker tilewright-measure-worker
    tilewright-bundle-run)
set(TILEWRIGHT_SHARED tilewright_vgpu tilewright_vgpu_redirect)
add_custom_target(tilewright_programs)
foreach(program ${TILEWRIGHT_PROGRAMS} ${TILEWRIGHT_SHARED})
  if(TARGET ${program})
    add_dependencies(tilewright_programs ${program})
    install(TARGETS ${program}
      RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()

set(TILEWRIGHT_DATADIR ${CMAKE_INSTALL_DATADIR}/tilewright)
install(DIRECTORY configs DESTINATION ${TILEWRIGHT_DATADIR})
install(DIRECTORY templates/device templates/kernels DESTINATION ${TILEWRIGHT_DATADIR}/templates
  FILES_MATCHING PATTERN *.cuh)
if(EXISTS ${PROJECT_SOURCE_DIR}/client/python/tilewright)
  install(DIRECTORY client/python/tilewright DESTINATION ${TILEWRIGHT_DATADIR}/python
    FILES_MATCHING PATTERN *.py)
endif()
install(FILES LICENSE DESTINATION ${TILEWRIGHT_DATADIR})

# The client library: what programs link. Header-only C++ over a C interface.
if(TARGET tilewright::client)
  get_target_property(client tilewright::client ALIASED_TARGET)
  set_target_properties(${client} PROPERTIES EXPORT_NAME client)
  target_include_directories(${client} INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/tilewright>)
  add_dependencies(tilewright_programs ${client})
  install(TARGETS ${client} EXPORT tilewright
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  foreach(header client/tilewright.h client/client.h jit/result.h)
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tilewright/${folder})
  endforeach()

  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tilewright)
  install(EXPORT tilewright NAMESPACE tilewright:: DESTINATION ${package_dir}
    FILE tilewrightTargets.cmake)
  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/tilewrightConfig.cmake.in
    ${PROJECT_BINARY_DIR}/tilewrightConfig.cmake INSTALL_DESTINATION ${package_dir})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/tilewrightConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/tilewrightConfig.cmake
                ${PROJECT_BINARY_DIR}/tilewrightConfigVersion.cmake
    DESTINATION ${package_dir})
endif()
