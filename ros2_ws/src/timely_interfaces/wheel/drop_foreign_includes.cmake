# The message wheels' exported targets name include folders of the machine that built them (/opt/python/...), which do
# not exist here and which CMake refuses. Once every target is known, take those folders out of the imported ones.

function(timely_drop_foreign_includes)
  get_property(targets DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" PROPERTY IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(folders ${target} INTERFACE_INCLUDE_DIRECTORIES)
    if(folders)
      list(FILTER folders EXCLUDE REGEX "^/opt/python/")
      set_property(TARGET ${target} PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${folders}")
    endif()
  endforeach()
endfunction()

cmake_language(DEFER CALL timely_drop_foreign_includes)
