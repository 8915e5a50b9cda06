# Writes OUTPUT, a header with the commit of SOURCE ("unknown" outside of a checkout), if it would change.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define PLUMBLINE_COMMIT \"${commit}\"\n")
